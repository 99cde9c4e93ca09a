/*-------------------------------------------------------------------------
 * retreat.h
 *	  Roll back younger transactions, to let an older one continue alone.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RETREAT_H
#define PAPPLY_RETREAT_H

#include "port/atomics.h"

#include "writer_slot.h"

/* Part of the pool. */
typedef struct PapplySharedExclusive
{
	pg_atomic_uint64 announced_seqno;	/* nothing is applied in progress
										 * before this is committed;
										 * in_progress.c */
	pg_atomic_uint64 in_force_seqno;	/* nothing younger is applied before
										 * this is committed */
} PapplySharedExclusive;

/*
 * Make all writers that apply transactions younger than seqno, the oldest one,
 * roll back soon.  They begin again when seqno is committed.  Until then the
 * latch of the process that applies seqno is set after each one.
 */
extern void papply_retreat_begin(uint64 seqno);

/*
 * Make this writer roll back soon, if it applies a range that begins with
 * first, or a streamed transaction that was applied in progress and has this
 * number.
 */
extern void papply_retreat_recall(PapplyWriterSlot *writer_slot, uint64 first);

/*
 * Must they roll back, and have not all of them done so?  The caller applies
 * seqno, the oldest one.
 */
extern bool papply_retreat_is_under_way(uint64 seqno);

/* Does this writer apply something younger than seqno?  Unlocked, a hint. */
extern bool papply_retreat_applies_younger(const PapplyWriterSlot *writer_slot, uint64 seqno);

/*
 * Writer: enter before a range that begins with first takes locks; leave when
 * the range has committed or rolled back.
 */
extern void papply_retreat_enter(uint64 first);
extern void papply_retreat_leave(void);

/* Writer: would a range that begins with first have to roll back at once? */
extern bool papply_retreat_concerns(uint64 first);

/*
 * Writer in its turn: wait until no younger transaction holds locks.  Throws
 * like papply_commit_order_wait().
 */
extern void papply_retreat_wait_until_exclusive(void);

/* Writer: throw PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if it has to roll back. */
extern void papply_retreat_check(void);

/* Writer: was its query canceled for a retreat? */
extern bool papply_retreat_has_canceled(void);

/* Writer: to be called by its signal handler. */
extern void papply_retreat_handle_signal(void);

/*
 * Writer: after a deadlock, let the processes that waited for this one wake up
 * and take their locks.  An immediate retry would take the locks before them.
 */
extern void papply_retreat_let_others_continue(void);

#endif							/* PAPPLY_RETREAT_H */
