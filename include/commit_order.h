/*-------------------------------------------------------------------------
 * room: pool
 *
 * commit_order.h
 *	  Commits happen in the order of sequence numbers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COMMIT_ORDER_H
#define PAPPLY_COMMIT_ORDER_H

#include "pool.h"

/* Errors of a writer that has to give way, and of one whose pool was closed. */
#define PAPPLY_ERRCODE_OLDER_WINS	MAKE_SQLSTATE('P', 'A', '0', '0', '1')
#define PAPPLY_ERRCODE_POOL_CLOSED	MAKE_SQLSTATE('P', 'A', '0', '0', '2')

/* All transactions up to this one are committed and visible. */
extern uint64 papply_commit_order_committed(void);

/*
 * Writer: wait until seqno is committed, showing the given state.  Throws
 * PAPPLY_ERRCODE_OLDER_WINS if the oldest transaction waits for us meanwhile
 * (only in a transaction), or when interrupted.
 */
extern void papply_commit_order_wait(uint64 seqno, PapplyWriterState state);

/*
 * Writer: one sleep of such a wait, until the latch is set or it is time to
 * look for a hidden deadlock.  Throws like papply_commit_order_wait().  The
 * counter must be 0 at the first sleep of a wait.
 */
extern void papply_commit_order_sleep(PapplyWriterState state, int *sleeps);

/* Writer: time that it has slept in all such waits, in microseconds; and how often. */
extern uint64 papply_commit_order_slept_us(void);
extern uint64 papply_commit_order_sleeps(void);

/*
 * Writer: wait for the turn of first, and pass the gate.  Throws
 * PAPPLY_ERRCODE_POOL_CLOSED.
 */
extern void papply_commit_order_enter(uint64 first);

/*
 * first..last are committed and visible (or empty): tell everybody who waits.
 * The caller is in its turn.
 */
extern void papply_commit_order_advance(uint64 first, uint64 last,
										XLogRecPtr local_end_lsn);

/*
 * Receiver: have its latch set when seqno is committed; 0 for never.  The
 * caller looks at papply_commit_order_committed() afterwards.
 */
extern void papply_commit_order_wake_receiver_at(uint64 seqno);

#endif							/* PAPPLY_COMMIT_ORDER_H */
