/*-------------------------------------------------------------------------
 * room: pool
 *
 * retreat.h
 *	  Younger transactions are rolled back, to let an older one go on alone.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RETREAT_H
#define PAPPLY_RETREAT_H

#include "pool.h"

/*
 * Whoever applies what is younger than seqno, the oldest one, rolls it back, soon, and
 * begins again when seqno is committed.
 */
extern void papply_retreat_begin(uint64 seqno);

/*
 * That writer applies a range that begins with first (or a transaction with that number
 * that was applied early), and rolls it back, soon.
 */
extern void papply_retreat_recall(PapplyWriterSlot *slot, uint64 first);

/* Is there such a retreat now? */
extern bool papply_retreat_is_on(void);

/*
 * The same, for the oldest one, by whoever applies it; returns true when all of them have
 * rolled back.  Until then, its latch is set when one more has.
 */
extern bool papply_retreat_is_complete(uint64 seqno);

/* Does that writer apply something that is younger than seqno?  Unlocked, a hint. */
extern bool papply_retreat_applies_younger(const PapplyWriterSlot *slot, uint64 seqno);

/*
 * Writer: from now on it applies a range that begins with first, and has locks; or
 * not any more, since all is committed or rolled back.
 */
extern void papply_retreat_enter(uint64 first);
extern void papply_retreat_leave(void);

/* Writer: would a range that begins with first be rolled back at once? */
extern bool papply_retreat_concerns(uint64 first);

/*
 * Writer in its turn: wait until no younger transaction has locks any more.  Throws like
 * papply_commit_order_wait().
 */
extern void papply_retreat_wait_until_alone(void);

/* Writer: throws PAPPLY_ERRCODE_OLDER_WINS if it has to roll back. */
extern void papply_retreat_check(void);

/* Writer: was a query cancelled for that? */
extern bool papply_retreat_has_cancelled(void);

/* Writer: for its signal handler. */
extern void papply_retreat_handle_signal(void);

/* Writer: note the error that has ended an attempt. */
extern void papply_retreat_note_error(int sqlerrcode);

/*
 * Writer: if that was a deadlock, let the processes that waited for this one wake up and
 * take their locks.  Tried again at once, the transaction would take them before.
 */
extern void papply_retreat_let_others_go_on(void);

#endif							/* PAPPLY_RETREAT_H */
