/*-------------------------------------------------------------------------
 * in_progress.h
 *	  Streamed transactions that a writer applies before their end is known.
 *
 * The receiver offers a streamed transaction.  A writer takes it, and reads
 * its file while the receiver writes it.  When the transaction has ended, it
 * becomes a transaction of the queue, which this writer commits in its turn.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_IN_PROGRESS_H
#define PAPPLY_IN_PROGRESS_H

#include "port/atomics.h"

#include "message.h"
#include "spool_file.h"
#include "writer_slot.h"

struct PapplyPool;

/* State of a place for a streamed transaction: see in_progress.c. */
typedef enum PapplyInProgressKind
{
	PAPPLY_IN_PROGRESS_NONE = 0,	/* the place is free */
	PAPPLY_IN_PROGRESS_OFFERED,
	PAPPLY_IN_PROGRESS_TAKEN,	/* a writer applies it */
	PAPPLY_IN_PROGRESS_GIVEN_UP,	/* the writer has rolled it back */
	PAPPLY_IN_PROGRESS_FAILED,	/* the same, and no writer must try again */
	PAPPLY_IN_PROGRESS_REVOKED, /* the receiver wants it to be rolled back */
	PAPPLY_IN_PROGRESS_ENDED	/* it is in the queue */
} PapplyInProgressKind;

/* Maximum number at a time. */
#define PAPPLY_MAX_IN_PROGRESS 8

typedef struct PapplyInProgress
{
	pg_atomic_uint32 state;		/* a kind, and the writer that has it */

	/* written by the receiver before the offer */
	TransactionId xid;
	PapplySpoolFile file;

	/* written by the receiver; atomic, because the writer polls it */
	pg_atomic_uint64 bytes;		/* bytes of the file that may be read */

	/* written by the receiver before PAPPLY_IN_PROGRESS_ENDED */
	uint64		seqno;
	PapplyCommit commit;
} PapplyInProgress;

/* Part of the pool. */
typedef struct PapplySharedInProgress
{
	pg_atomic_uint64 writers;	/* one bit per writer that has one */
	PapplyInProgress places[PAPPLY_MAX_IN_PROGRESS];
} PapplySharedInProgress;

/* Not a place. */
#define PAPPLY_NO_PLACE (-1)

/*** verbs of the receiver ***/

/*
 * May streamed transactions be applied in progress at present, if a writer can
 * be spared?
 */
extern bool papply_in_progress_is_allowed(void);

/*
 * Offer a transaction to writers.  Returns its place, which it keeps until it
 * is revoked or released, or PAPPLY_NO_PLACE if no writer can be spared.
 */
extern int	papply_in_progress_offer(TransactionId xid, const PapplySpoolFile *file);

/* Let the writer read this many bytes of the file. */
extern void papply_in_progress_publish(int place, uint64 bytes);

/*
 * End the transaction with commit and give it number seqno, which has begun in
 * the queue.  Returns false if no writer has it any longer; then the caller
 * must revoke it.
 */
extern bool papply_in_progress_end(int place, uint64 seqno, const PapplyCommit *commit);

/* Let its writer commit it: it is complete in the queue. */
extern void papply_in_progress_complete(int place);

/*
 * Make its writer roll it back.  The caller must not use the place after that.
 */
extern void papply_in_progress_revoke(int place);

/* Has its writer failed to apply it after many changes?  Then no other one should try. */
extern bool papply_in_progress_has_failed(int place);

/* Was this transaction revoked, and has its writer not rolled it back yet? */
extern bool papply_in_progress_is_leaving(int place, TransactionId xid);

/* Free the place of a transaction that has ended and committed. */
extern void papply_in_progress_release(int place);

/* Return the number of writers that have a streamed transaction. */
extern int	papply_in_progress_count(void);

/*** verbs of any process ***/

/*
 * Return the writer of the transaction that has ended and has this number, or
 * NULL.
 */
extern PapplyWriterSlot *papply_in_progress_writer_of(struct PapplyPool *pool, uint64 seqno);

/*** verbs of writers ***/

/* Is there a transaction that this writer can take?  If not, it may sleep. */
extern bool papply_in_progress_may_take(void);

/*
 * Take one.  Returns false if others were faster or no other writer would
 * remain.
 */
extern bool papply_in_progress_take(void);

/*
 * Return what this writer has taken, or NULL, whether or not that has ended.
 * Only the fields of the offer, and bytes, may be read.
 */
extern PapplyInProgress *papply_in_progress_mine(void);

/*
 * Is the transaction complete in the queue?  Then its file does not grow any
 * longer, it has a number, and *commit is set.
 */
extern bool papply_in_progress_has_ended(PapplyCommit *commit);

/*
 * Writer: to be called by its signal handler.  Cancels what the writer waits
 * for if its transaction was revoked.
 */
extern void papply_in_progress_handle_revoke(void);

/*
 * Return the number of the streamed transaction that the writer applies and
 * that has ended, or PAPPLY_SEQNO_OPEN if there is none.
 */
extern uint64 papply_in_progress_number_of(int writer);

/*
 * Writer: return its number if it has ended, else PAPPLY_SEQNO_OPEN.  Can be
 * called in signal handlers.
 */
extern uint64 papply_in_progress_number(void);

/*
 * Throw an error if this writer's transaction was revoked, or if no other
 * writer remains to apply the queue.  To be called often, and in every wait
 * for others.
 */
extern void papply_in_progress_check(void);

/*
 * The same if a logical slot may wait for the transaction to end.  This is
 * more expensive, so call it when sleeping.
 */
extern void papply_in_progress_check_slots(void);

/*
 * Return the transaction to the receiver, after it was rolled back; for_good:
 * no writer must try again.  Returns false if it has ended, so that the core
 * apply loop must apply it.
 */
extern bool papply_in_progress_give_up(bool for_good);

/* End this writer's work on it. */
extern void papply_in_progress_leave(void);

#endif							/* PAPPLY_IN_PROGRESS_H */
