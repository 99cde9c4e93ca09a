/*-------------------------------------------------------------------------
 * core_loop.h
 *	  Pass transactions to the core apply loop.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CORE_LOOP_H
#define PAPPLY_CORE_LOOP_H

#include "message.h"

/*
 * Is the core apply loop in a transaction, is that a leader transaction, and
 * which sequence number does it have?  PAPPLY_NO_SEQNO if the transaction came
 * directly.
 */
extern bool papply_core_loop_is_active(void);
extern bool papply_core_loop_has_leader_transaction(void);
extern uint64 papply_core_loop_seqno(void);

/* Is it in a transaction with messages that are still in the queue? */
extern bool papply_core_loop_reads_queue(void);

/*
 * The core apply loop may begin to apply transaction seqno of the queue, or
 * one whose messages come directly.  origin is PAPPLY_NO_ORIGIN if there is no
 * pool.
 */
extern void papply_core_loop_begin_queued(uint64 seqno, PapplyOriginId origin);
extern void papply_core_loop_begin_direct(PapplyOriginId origin, bool is_leader_transaction);

/*
 * Get the next message of a queued transaction.  Return its length, or 0 if
 * what follows must be received.
 */
extern int	papply_core_loop_next(char **buffer);

/*
 * Called before a received message is passed to the core apply loop.  Return
 * the length of another message that must be passed to it first, or 0.  Notes
 * whether the message ends the transaction.
 */
extern int	papply_core_loop_before(const PapplyMessage *message, char **buffer);

/*
 * May the transaction have run user code, as far as its messages have been
 * passed on without the queue, or because a table was changed meanwhile?
 */
extern bool papply_core_loop_may_have_run_code(void);

/*
 * Called first in every receive.  If the core apply loop has got the last
 * message of a transaction, it has committed that transaction.
 */
extern bool papply_core_loop_is_ended(void);

/*
 * After that: return the end of the transaction (Invalid: it has none), and the
 * end of the local WAL that must be flushed before the commit is confirmed.
 */
extern void papply_core_loop_finish(XLogRecPtr *remote_end_lsn, XLogRecPtr *local_end_lsn);

/*
 * Release the origin, so that the next receiver does not find it in use.  The
 * process ends, and no transaction is open.
 */
extern void papply_core_loop_abandon(void);

#endif							/* PAPPLY_CORE_LOOP_H */
