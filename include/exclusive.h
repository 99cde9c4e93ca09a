/*-------------------------------------------------------------------------
 * exclusive.h
 *	  Nothing younger is applied while a transaction is applied exclusively.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_EXCLUSIVE_H
#define PAPPLY_EXCLUSIVE_H

#include "port/atomics.h"

#include "writer_slot.h"

/* Part of the pool.  Each number counts until it is committed. */
typedef struct PapplySharedExclusive
{
	pg_atomic_uint64 announced_seqno;	/* written by the receiver */
	pg_atomic_uint64 in_force_seqno;	/* written by any process */
} PapplySharedExclusive;

/*
 * Receiver: announce that seqno, the open transaction, is exclusive, before it
 * is marked as such in the queue.  Streamed transactions that have no number
 * yet roll back soon, and none begins before seqno is committed.
 */
extern void papply_exclusive_announce(uint64 seqno);

/*
 * Make all writers that apply transactions younger than seqno, the oldest one,
 * roll back soon.  They begin again when seqno is committed.
 */
extern void papply_exclusive_put_in_force(uint64 seqno);

/*
 * Make this writer roll back soon, if it applies a range that begins with
 * first, or a streamed transaction that was applied in progress and has this
 * number.
 */
extern void papply_exclusive_roll_back(PapplyWriterSlot *writer_slot, uint64 first);

/* Does this writer apply something younger than seqno?  Unlocked, a hint. */
extern bool papply_exclusive_applies_younger(const PapplyWriterSlot *writer_slot, uint64 seqno);

/* Does any writer apply something, or still hold the locks of what it has committed? */
extern bool papply_exclusive_is_any_applied(void);

/*
 * Receiver, when everything in the queue is committed: must it wait for locks of that
 * before the core apply loop applies the next transaction?  If so, its latch is set when
 * these have been released.
 */
extern bool papply_exclusive_must_await_locks(void);

/* Is something in force that is not committed? */
extern bool papply_exclusive_is_in_force(void);

/*** verbs of the process that applies seqno, the oldest transaction ***/

/*
 * Return whether no other transaction holds locks, or will before seqno is
 * committed.  If false, younger ones that do are rolling back, older ones are about to
 * release theirs, and the latch of this process is set after each one.
 */
extern bool papply_exclusive_enter(uint64 seqno);

/* Has it returned true?  Or would it return false, and do nothing? */
extern bool papply_exclusive_has_entered(uint64 seqno);
extern bool papply_exclusive_waits(uint64 seqno);

/*
 * Writer in its turn: wait until it can enter.  Throws like
 * papply_commit_order_wait().
 */
extern void papply_exclusive_wait(void);

/*** verbs of writers, whose transactions may be younger ***/

/*
 * Begin before a range that begins with first takes locks, and check after
 * that; end when the range has committed or rolled back.
 */
extern void papply_exclusive_begin_range(uint64 first);
extern void papply_exclusive_end_range(void);

/*
 * Throw PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if this writer has to roll back.
 * streamed is papply_in_progress_number().
 */
extern void papply_exclusive_check(uint64 streamed);

/*
 * Would a range that begins with first (PAPPLY_SEQNO_OPEN: a streamed
 * transaction without a number) have to roll back at once?
 */
extern bool papply_exclusive_forbids(uint64 first);

/* To be called by the signal handler: cancel what the writer waits for. */
extern void papply_exclusive_handle_signal(uint64 streamed);

/* Was its query canceled for this reason? */
extern bool papply_exclusive_has_canceled(void);

#endif							/* PAPPLY_EXCLUSIVE_H */
