/*-------------------------------------------------------------------------
 * statistics.h
 *	  Statistics and state of subscriptions, for the views.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STATISTICS_H
#define PAPPLY_STATISTICS_H

#include "slot_data.h"

/* A copy for the views. */
typedef struct PapplyStatistics
{
	Oid			subid;
	pid_t		receiver_pid;	/* 0 if none */
	PapplyProgress progress;
	uint64		counts[PAPPLY_COUNTERS];	/* since the last reset */
	uint64		total_transactions; /* never reset */
	PapplyLastError last_error;
	PapplyFailedTransaction failed;
	TimestampTz stats_reset;
} PapplyStatistics;

/*
 * Receiver or writer: count in the slot that this process is attached to, if
 * any; or stop that, before the receiver leaves the slot.
 */
extern void papply_statistics_attach(void);
extern void papply_statistics_detach(void);

/*
 * Counters of this process.  No other process writes them, so they need no
 * lock and no atomics.  A process that is not attached counts in a dummy row.
 * Writers add what a transaction did after its commit.
 */
extern uint64 *papply_statistics_counts;

static inline void
papply_statistics_count(PapplyCounter counter, uint64 n)
{
	Assert(counter < PAPPLY_COUNTERS);
	papply_statistics_counts[counter] += n;
}

/* Receiver: the state that it publishes.  Never NULL. */
extern PapplyProgress *papply_statistics_progress;

/*
 * Receiver: count a wait for a lock that has ended: once for each second of the clock that
 * began during the wait, and its time.  What readers have counted while it lasted does not
 * count again.
 */
extern void papply_statistics_end_wait(TimestampTz began_at, TimestampTz ended_at);

/* Count an error, and store it as the last one. */
extern void papply_statistics_note_error(const char *message);

/* Store the transaction that failed, and count its failures. */
extern void papply_statistics_note_failed(const PapplyFailedTransaction *failed);

/* Applying more changes than this once more, to fail again, takes long. */
#define PAPPLY_MANY_CHANGES 1000

/*
 * Receiver: is this the transaction that has failed last, after many changes?
 * Then PostgreSQL's own apply makes the next attempts alone.
 */
extern bool papply_statistics_is_failed(TransactionId remote_xid);

/*
 * Views: is there a failed transaction that has neither been applied nor
 * skipped since?
 */
extern bool papply_statistics_has_failed(const PapplyStatistics *statistics);

/* Receiver: return the number of transactions committed, never reset. */
extern uint64 papply_statistics_transactions(void);

/*
 * Views: copy those of a subscription of this database.  Returns false if it
 * has no slot.  A wait of the apply worker for a lock is counted until now.
 */
extern bool papply_statistics_get(Oid subid, PapplyStatistics *copy);

/*
 * Views: return the state that rates at that time (of clock.h) are relative to,
 * some seconds earlier.  Returns false if there is no sample yet.
 */
extern bool papply_statistics_rate_base(const PapplyProgress *progress, int64 now,
										PapplySample *base);

/*
 * Return the time since which the subscription is behind.  This is the commit
 * time on the publisher of the oldest transaction that is not committed.
 * Without an apply worker, or while it fails, it is at least the time at which
 * everything received was committed.  0 means that the subscription is not
 * behind, or that this is not known because there is no apply worker.
 */
extern TimestampTz papply_statistics_behind_since(const PapplyProgress *progress,
												  bool is_running);

/*
 * What a restart of the server keeps of a subscription.  A change needs a new
 * version of the file (saved.c).
 */
typedef struct PapplySavedSubscription
{
	Oid			subid;
	Oid			dbid;
	uint64		counts[PAPPLY_COUNTERS];	/* since the last reset */
	TimestampTz stats_reset;
	PapplyLastError last_error;
	PapplyFailure failure;
	PapplyFailedTransaction failed;
	TimestampTz behind_since;
} PapplySavedSubscription;

/*
 * Postmaster, at start or exit: load, or return, what is kept of all
 * subscriptions, allocated with palloc.
 */
extern void papply_statistics_load(const PapplySavedSubscription *saved, uint32 n);
extern PapplySavedSubscription *papply_statistics_save(uint32 *n);

/* Return the clause after "because", or NULL for PAPPLY_REASON_NONE. */
extern const char *papply_statistics_reason_text(PapplyApplyReason reason);

/*
 * Reset all counters of a subscription of this database, its hot keys and the
 * estimate of its pool, if it has a slot.  InvalidOid means all subscriptions.
 */
extern void papply_statistics_reset(Oid subid);

#endif							/* PAPPLY_STATISTICS_H */
