/*-------------------------------------------------------------------------
 * room: pool
 *
 * early.h
 *	  Streamed transactions that a writer applies before their end is known.
 *
 * The receiver offers one, a writer takes it and reads its file behind the
 * receiver.  When it has ended it becomes a transaction of the queue, which
 * this writer commits in its turn.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_EARLY_H
#define PAPPLY_EARLY_H

#include "message.h"
#include "pool.h"
#include "spool_file.h"

/* No place. */
#define PAPPLY_NO_EARLY (-1)

/*** verbs of the receiver ***/

/*
 * Offer a transaction to writers.  Returns the place that it has got, until it is revoked or
 * released; or PAPPLY_NO_EARLY if no writer can be spared for it.
 */
extern int	papply_early_offer(TransactionId xid, const PapplySpoolFile *file);

/* So many bytes of its file may be read. */
extern void papply_early_publish(int place, uint64 bytes);

/*
 * It has ended with commit, and gets number seqno, which has been begun in the queue.
 * Returns false if no writer has it, or not any more: then it is to be revoked.
 */
extern bool papply_early_end(int place, uint64 seqno, const PapplyCommit *commit);

/* The same transaction is complete in the queue: its writer may commit it. */
extern void papply_early_complete(int place);

/* Its writer shall roll it back; the place is not used any more. */
extern void papply_early_revoke(int place);

/* Was that transaction revoked from the place, and its writer has not yet rolled it back? */
extern bool papply_early_is_leaving(int place, TransactionId xid);

/* It has ended, and was committed: the place is free. */
extern void papply_early_release(int place);

/* So many writers have one. */
extern int	papply_early_count(void);

/*
 * Transaction seqno, which has not ended, may run code of the user: what is applied early
 * is given up, and nothing more is taken before seqno is committed.
 */
extern void papply_early_keep_out(uint64 seqno);

/*** verbs of anybody ***/

/* Is there such a transaction in the queue? */
extern bool papply_early_is_kept_out(void);

/* The writer of a transaction that has ended and has that number, or NULL. */
extern PapplyWriterSlot *papply_early_writer_of(PapplyPool *pool, uint64 seqno);

/*** verbs of writers ***/

/* Is there something to take for this writer?  Else it may sleep. */
extern bool papply_early_may_take(void);

/* Take it; false if others were faster, or no other writer would be left. */
extern bool papply_early_take(void);

/* Has this writer taken one, also if it has ended? */
extern bool papply_early_is_taken(void);

/* What this writer has taken: as offered, and how much of its file may be read. */
extern TransactionId papply_early_xid(void);
extern const PapplySpoolFile *papply_early_file(void);
extern uint64 papply_early_bytes(void);

/*
 * Is it complete in the queue?  Then it has that number and commit; else these are
 * undefined.  Its file does not grow any more then.
 */
extern bool papply_early_has_ended(uint64 *seqno, PapplyCommit *commit);

/* The same; throws if it is not. */
extern void papply_early_get_end(uint64 *seqno, PapplyCommit *commit);

/* Writer: for its signal handler; cancels what it waits for if it is revoked. */
extern void papply_early_handle_revoke(void);

/*
 * Return the number of the streamed transaction that a writer applies and that has ended;
 * PAPPLY_SEQNO_OPEN if there is none.
 */
extern uint64 papply_early_number_of(int writer);

/* Its number, once papply_early_give_up() has said that it has ended. */
extern uint64 papply_early_seqno(void);

/* Writer: its number if it has ended, else PAPPLY_SEQNO_OPEN.  For signal handlers, too. */
extern uint64 papply_early_number(void);

/*
 * Throw if this writer has something that was revoked, or if no other writer is left to
 * apply what is in the queue.  To be asked often, and in every wait for others.
 */
extern void papply_early_check(void);

/* The same if a logical slot may wait for it to end.  Costs more: for sleeps. */
extern void papply_early_check_slots(void);

/*
 * It was rolled back: give it back to the receiver.  False: it has ended, and has to be
 * applied again by the native loop.
 */
extern bool papply_early_give_up(void);

/* This writer has nothing to do with it any more. */
extern void papply_early_leave(void);

#endif							/* PAPPLY_EARLY_H */
