/*-------------------------------------------------------------------------
 * claim.h
 *	  Which writer applies which transactions of the queue.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CLAIM_H
#define PAPPLY_CLAIM_H

/*** verbs of writers ***/

/*
 * Claim the next transactions, at most max.  Returns false if there is nothing
 * to claim, or more writers are awake than the limit.  Transactions left
 * to the leader or applied in progress are never claimed.  Either all of those
 * claimed are exclusive or none is.
 */
extern bool papply_claim(int max, uint64 *first, uint64 *last);

/*
 * Register a transaction that only this writer can have, or PAPPLY_SEQNO_OPEN.
 */
extern void papply_claim_in_progress(uint64 seqno);

/*
 * Does the next transaction depend on one that another writer has not
 * committed yet?  A hint.
 */
extern bool papply_claim_next_must_wait(void);

/*
 * Sleep until there may be something to claim, or the latch is set.  Returns
 * false after timeout_ms; -1 means no timeout.
 */
extern bool papply_claim_wait_for_work(long timeout_ms);

#endif							/* PAPPLY_CLAIM_H */
