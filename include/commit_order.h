/*-------------------------------------------------------------------------
 * commit_order.h
 *	  Commits happen in the order of sequence numbers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COMMIT_ORDER_H
#define PAPPLY_COMMIT_ORDER_H

#include "access/xlogdefs.h"
#include "port/atomics.h"

#include "writer_slot.h"

/* Part of the pool. */
typedef struct PapplySharedOrder
{
	pg_atomic_uint64 committed_seqno;
	char		pad[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 waiting_for[PAPPLY_WAITERS];	/* the process sleeps
													 * until committed_seqno
													 * is this; or 0 */
} PapplySharedOrder;

/* Errors of a writer that rolls back for others, or whose pool was closed. */
#define PAPPLY_ERRCODE_COMMIT_ORDER_ABORT	MAKE_SQLSTATE('P', 'A', '0', '0', '1')
#define PAPPLY_ERRCODE_POOL_CLOSED	MAKE_SQLSTATE('P', 'A', '0', '0', '2')

/*
 * What a process checks after each sleep, and after one in which nothing has
 * woken it.  Each may throw an error.
 */
typedef struct PapplyWaitChecks
{
	void		(*after_sleep) (void);
	void		(*find_deadlock) (void);
	void		(*find_local_waiters) (void);
} PapplyWaitChecks;

/*
 * Set what this process checks from now on.  Until then it checks only whether
 * the pool is open.
 */
extern void papply_commit_order_set_checks(const PapplyWaitChecks *new_checks);

/*
 * Writer: wait until seqno is committed, showing the given state.  Throws
 * PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if the oldest transaction waits for this
 * writer meanwhile (only in a transaction), or an error when interrupted.
 */
extern void papply_commit_order_wait(uint64 seqno, PapplyWriterState state);

/*
 * Writer: sleep once in such a wait, until the latch is set or it is time to
 * search for a hidden deadlock.  Throws like papply_commit_order_wait().
 * *sleeps must be 0 at the first sleep of a wait.
 */
extern void papply_commit_order_sleep(PapplyWriterState state, int *sleeps);

/* Writer: return the time slept in all such waits, in microseconds. */
extern uint64 papply_commit_order_slept_us(void);

/*
 * Writer: wait for the turn of first, and check that the gate is open.  Throws
 * PAPPLY_ERRCODE_POOL_CLOSED if it is not.
 */
extern void papply_commit_order_enter(uint64 first);

/*
 * Request a flush of a local commit that ends there; InvalidXLogRecPtr if
 * nothing was written.  Called by the process in its turn, before it advances
 * committed_seqno.
 */
extern void papply_commit_order_want_flush(XLogRecPtr local_end_lsn);

/*
 * Record that first..last are committed and visible (or empty), and wake the
 * processes that wait for them.  The caller is in its turn.
 */
extern void papply_commit_order_advance(uint64 first, uint64 last,
										XLogRecPtr local_end_lsn);

/*
 * Receiver: have the latch set when seqno is committed; 0 for never.  The
 * caller must check papply_pool_committed() afterwards.
 */
extern void papply_commit_order_wake_receiver_at(uint64 seqno);

#endif							/* PAPPLY_COMMIT_ORDER_H */
