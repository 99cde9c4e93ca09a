/*-------------------------------------------------------------------------
 * claim.h
 *	  Claims of transactions by writers (claim.c), and which writers are awake to
 *	  make them (awake.c).
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CLAIM_H
#define PAPPLY_CLAIM_H

#include "port/atomics.h"

#include "parallel_apply.h"

/* Part of the pool: awake.c.  Each writer has a bit. */
typedef struct PapplySharedAwake
{
	pg_atomic_uint64 present_writers;
	pg_atomic_uint64 idle_writers;	/* writers that sleep until there is work */
	pg_atomic_uint64 ahead_writers; /* writers that read ahead */
	pg_atomic_uint32 limit;		/* set by the receiver */
} PapplySharedAwake;

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

/* Register this writer as present and awake, or as gone. */
extern void papply_awake_begin(void);
extern void papply_awake_end(void);

/* Are more writers awake than the limit?  Then the caller should sleep. */
extern bool papply_awake_is_surplus(void);

/* Does another writer sleep, which could work instead of this one? */
extern bool papply_awake_has_substitute(void);

/*
 * Sleep until woken or until the latch is set.  Return immediately if there is
 * something to claim for this writer, or has_other_work() returns true.
 * Returns false after timeout_ms; -1 means no timeout.
 */
extern bool papply_awake_sleep(long timeout_ms, bool (*has_other_work) (void));

/* Report, between two transactions, whether this writer reads ahead. */
extern void papply_awake_set_ahead(bool reads_ahead);

/*** verbs of any process ***/

/*
 * Wake a sleeping writer.  Returns false if none sleeps or the limit is
 * reached.
 */
extern bool papply_awake_wake_one(void);

/* The same without the limit, for work other than applying the queue. */
extern bool papply_awake_wake_spare(void);

/*
 * Wake a sleeping writer if there is work for it.  This writer wakes another
 * one if it leaves work.  Publishing wakes a writer only when the backlog is
 * large, so the receiver calls this before it does anything other than read.
 */
extern void papply_awake_wake_for_work(void);

/* Return the expected number of writers that share the backlog. */
extern int	papply_awake_sharing(void);

/*** verbs of the receiver ***/

/*
 * Publish what the open transaction has so far, and wake a sleeping writer for
 * it.
 */
extern void papply_awake_publish_open(void);

/* Wake a sleeping writer if the backlog is large. */
extern void papply_awake_wake_for_backlog(void);

/* Do writers hide waits for storage by reading ahead? */
extern bool papply_awake_reads_ahead(void);

/* Reset the limit at the beginning of a pool. */
extern void papply_awake_reset(void);

/*
 * Adjust the limit.  is_behind says that the transaction received last is old.
 * Returns the milliseconds after which this must be called again at the
 * latest, because work waits for the limit to be raised; or -1.
 */
extern long papply_awake_adjust(bool is_behind);

/*
 * Could one more writer help?  There is a backlog, all writers are awake, and
 * their number is below the limit.
 */
extern bool papply_awake_is_short(void);

#endif							/* PAPPLY_CLAIM_H */
