/*-------------------------------------------------------------------------
 * room: pool
 *
 * statistics.h
 *	  What a subscription does and has done, for the views.
 *
 * A place in the server's main shared memory for each subscription with a leader
 * apply worker, with or without a pool.  It is found by the OID of the
 * subscription, survives the worker, and is given to another subscription only
 * when no other place is free.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STATISTICS_H
#define PAPPLY_STATISTICS_H

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"

#include "pool.h"

/*
 * What is counted, in the order of the columns of parallel_apply.subscription_stats.
 * A new one gets its place here, its name at the same place in
 * src/sql/subscriptions.c, and a column in the installation script.
 */
typedef enum PapplyCounter
{
	/* committed, by writers and by the native loop */
	PAPPLY_COUNT_TRANSACTIONS = 0,
	PAPPLY_COUNT_NATIVE_TRANSACTIONS,	/* by the native loop alone */
	PAPPLY_COUNT_INSERTS,
	PAPPLY_COUNT_UPDATES,
	PAPPLY_COUNT_DELETES,
	PAPPLY_COUNT_TRUNCATES,
	PAPPLY_COUNT_BATCHES,		/* local transactions of writers */

	/* what went wrong and was put right */
	PAPPLY_COUNT_FAILED_ATTEMPTS,	/* of writers */
	PAPPLY_COUNT_RETRIES,
	PAPPLY_COUNT_COMMIT_ORDER_ABORTS,
	PAPPLY_COUNT_ERRORS,

	/* transactions before and after which nothing else was applied; why */
	PAPPLY_COUNT_EXCLUSIVE_TABLE,	/* a table that is applied serially */
	PAPPLY_COUNT_EXCLUSIVE_TRUNCATE,
	PAPPLY_COUNT_EXCLUSIVE_FALLBACK,	/* rows are not known, natively
										 * applied */
	PAPPLY_COUNT_REFETCHES,		/* fetched again for the native loop */
	PAPPLY_COUNT_POOL_STOPS,	/* the pool stopped */

	/* transactions of the queue that the native loop applied; why */
	PAPPLY_COUNT_FALLBACK_SYNC, /* a table is being synchronised */
	PAPPLY_COUNT_FALLBACK_TABLE,	/* writers do not handle the table */
	PAPPLY_COUNT_FALLBACK_MESSAGE,	/* nor the message, or it is too large */
	PAPPLY_COUNT_FALLBACK_FAILURE,	/* a writer failed twice */
	PAPPLY_COUNT_FALLBACK_SUBSCRIPTION, /* SKIP, disabled, another owner */
	PAPPLY_COUNT_FALLBACK_NO_WRITER,
	PAPPLY_COUNT_LEADER_TRANSACTIONS,	/* small, and there was nothing else */

	/* streamed transactions that were committed */
	PAPPLY_COUNT_STREAMED_IN_PROGRESS,	/* a writer was applying it by then */
	PAPPLY_COUNT_STREAMED_FROM_FILE,	/* from its file, after its end */

	/* waits of writers; the first four in the order of PapplyWriterState */
	PAPPLY_COUNT_WAITS_DEPENDENCY,
	PAPPLY_COUNT_WAITS_COMMIT_ORDER,
	PAPPLY_COUNT_WAITS_DATA,
	PAPPLY_COUNT_WAITS_LEADER,
	PAPPLY_COUNT_WAITS_LOCK,	/* estimated: see status.c */

	/* microseconds; milliseconds in the view */
	PAPPLY_COUNT_APPLY_US,		/* of writers, without waits for each other */
	PAPPLY_COUNT_DEPENDENCY_US,
	PAPPLY_COUNT_COMMIT_ORDER_US,
	PAPPLY_COUNT_DATA_US,
	PAPPLY_COUNT_LEADER_US,
	PAPPLY_COUNT_LOCK_US,
} PapplyCounter;

#define PAPPLY_COUNTERS (PAPPLY_COUNT_LOCK_US + 1)
#define PAPPLY_FIRST_TIME PAPPLY_COUNT_APPLY_US

/* Which process applies a subscription. */
typedef enum PapplyApplyState
{
	PAPPLY_APPLY_NONE = 0,		/* nobody: there is no apply worker */
	PAPPLY_APPLY_NATIVE,		/* the native loop; reason says why */
	PAPPLY_APPLY_PARALLEL,		/* writers */
	PAPPLY_APPLY_STOPPING,		/* the pool is about to stop; reason */
	PAPPLY_APPLY_PAUSED			/* nobody, as an operator wants it */
} PapplyApplyState;

typedef enum PapplyApplyReason
{
	PAPPLY_REASON_NONE = 0,
	PAPPLY_REASON_STARTING,
	PAPPLY_REASON_NO_EXTENSION, /* in that database */
	PAPPLY_REASON_ONE_WRITER,	/* is configured */
	PAPPLY_REASON_RETAIN_DEAD_TUPLES,
	PAPPLY_REASON_ROLE,			/* a trigger has set another one */
	PAPPLY_REASON_STREAMING,	/* until what is streamed has ended */
	PAPPLY_REASON_NO_QUEUE,		/* no shared memory */
	PAPPLY_REASON_NO_WRITERS,	/* none could be started */
	PAPPLY_REASON_FEW_WRITERS	/* not all could, with PAPPLY_APPLY_PARALLEL */
} PapplyApplyReason;

/* What ended the last apply worker, until that is overcome. */
typedef enum PapplyFailureKind
{
	PAPPLY_FAILURE_NONE,
	PAPPLY_FAILURE_TRANSACTION, /* not overcome before final_lsn is committed */
	PAPPLY_FAILURE_CONNECTION,	/* nor this before there is a connection */
	PAPPLY_FAILURE_OTHER		/* nor this */
} PapplyFailureKind;

typedef struct PapplyFailure
{
	PapplyFailureKind kind;
	XLogRecPtr	final_lsn;		/* where the transaction was committed on the
								 * publisher */
	TimestampTz behind_since;	/* as papply_statistics_behind_since() */
} PapplyFailure;

/* What the apply worker itself applies. */
typedef struct PapplyLeader
{
	bool		is_applying;	/* a transaction, which is: */
	int64		began_at;		/* of clock.h; 0: not known */
	TransactionId remote_xid;
	XLogRecPtr	final_lsn;
	TimestampTz commit_time;
	uint64		changes;		/* that it has begun */
} PapplyLeader;

#define PAPPLY_FAILED_TEXT_LENGTH 512
#define PAPPLY_FAILED_KEY_LENGTH 256

/*
 * The transaction that the apply worker has failed to apply, the last time; what it shows
 * of its data is for those who may read that table.  PapplyFailure says whether that is
 * overcome.
 */
typedef struct PapplyFailedTransaction
{
	TransactionId remote_xid;
	XLogRecPtr	final_lsn;		/* InvalidXLogRecPtr: none */
	TimestampTz commit_time;	/* on the publisher; 0: not known */
	TimestampTz first_failed_at;
	TimestampTz failed_at;		/* the last time */
	uint32		attempts;
	uint64		changes;		/* that were begun, with the one that failed */
	int			sqlerrcode;
	char		message[PAPPLY_FAILED_TEXT_LENGTH];
	char		detail[PAPPLY_FAILED_TEXT_LENGTH];
	char		kind;			/* of the message that failed */
	char		schema_name[NAMEDATALEN];	/* empty: not known */
	char		table_name[NAMEDATALEN];
	char		key[PAPPLY_FAILED_KEY_LENGTH];	/* empty: not known */
} PapplyFailedTransaction;

/* What had been applied at a moment, for rates. */
typedef struct PapplySample
{
	int64		taken_at;		/* of clock.h */
	uint64		transactions;	/* committed, never reset */
	TimestampTz oldest_commit_time; /* the time, if there was none */
} PapplySample;

#define PAPPLY_SAMPLES 7

/*
 * As it is.  Written by the receiver alone, read without a lock: fields may be
 * of slightly different moments.
 */
typedef struct PapplyProgress
{
	PapplyApplyState state;
	PapplyApplyReason reason;
	PapplyFailure failure;
	PapplyLeader leader;

	/* of the publisher's WAL */
	XLogRecPtr	received_lsn;
	XLogRecPtr	dispatched_lsn; /* end of the last transaction in the queue */
	XLogRecPtr	committed_lsn;
	XLogRecPtr	flushed_lsn;

	uint64		queue_bytes;
	uint64		queue_transactions;

	/*
	 * When the oldest transaction that was received and is not committed was
	 * committed on the publisher; 0: there is none.
	 */
	TimestampTz oldest_commit_time;

	/*
	 * When everything that was received was committed, looked at once a
	 * second.
	 */
	TimestampTz current_at;

	/* A ring, of one a second at most; a reader leaves out the oldest. */
	PapplySample samples[PAPPLY_SAMPLES];
	uint64		samples_taken;

#ifdef PAPPLY_SELFTEST
	uint64		routed_messages;	/* of the publisher, not only watched */
#endif
} PapplyProgress;

#define PAPPLY_ERROR_LENGTH 256

/* All of a subscription, as the views get it. */
typedef struct PapplyStatistics
{
	Oid			subid;
	Oid			dbid;
	pid_t		receiver_pid;	/* 0: none */
	PapplyProgress progress;
	uint64		counts[PAPPLY_COUNTERS];	/* since the last reset */
	uint64		total_transactions; /* never reset */
	TimestampTz last_error_time;	/* 0: none */
	char		last_error[PAPPLY_ERROR_LENGTH];
	PapplyFailedTransaction failed;
	TimestampTz stats_reset;
} PapplyStatistics;

/* Hooks for _PG_init. */
extern void papply_statistics_request_shmem(void);
extern void papply_statistics_init_shmem(void);

/*
 * Receiver, not in a transaction: find or take the place of a subscription; and say
 * that it has no receiver any more.  Writers have left then.
 */
extern void papply_statistics_attach_receiver(Oid dbid, Oid subid);
extern void papply_statistics_detach_receiver(void);

/* Writer: after it has been attached to its pool. */
extern void papply_statistics_attach_writer(void);

/*
 * Counters of this process, which nobody else writes: no lock, no atomics.  A
 * process that is not attached counts for nobody.  Writers keep what they do in
 * a transaction until it is committed.
 */
extern uint64 *papply_statistics_counts;

static inline void
papply_statistics_count(PapplyCounter counter, uint64 n)
{
	papply_statistics_counts[counter] += n;
}

/* Receiver: the native loop has committed a transaction with these changes. */
static inline void
papply_statistics_count_native(uint64 inserts, uint64 updates, uint64 deletes, uint64 truncates)
{
	papply_statistics_count(PAPPLY_COUNT_TRANSACTIONS, 1);
	papply_statistics_count(PAPPLY_COUNT_NATIVE_TRANSACTIONS, 1);
	papply_statistics_count(PAPPLY_COUNT_INSERTS, inserts);
	papply_statistics_count(PAPPLY_COUNT_UPDATES, updates);
	papply_statistics_count(PAPPLY_COUNT_DELETES, deletes);
	papply_statistics_count(PAPPLY_COUNT_TRUNCATES, truncates);
}

/* Receiver: what it shows.  Never NULL. */
extern PapplyProgress *papply_statistics_progress;

/* Remember an error: the message that the log has, or would have. */
extern void papply_statistics_note_error(const char *message);

/* Remember the transaction that has failed, and how often it has. */
extern void papply_statistics_note_failed(const PapplyFailedTransaction *failed);

/* Views: is there a transaction that has failed, and was neither applied nor skipped since? */
extern bool papply_statistics_has_failed(const PapplyStatistics *statistics);

/* Receiver: the sum of a counter over all processes, never reset. */
extern uint64 papply_statistics_total(PapplyCounter counter);

/* Views: copy the n-th place; false when there is no such place. */
extern bool papply_statistics_peek(int n, PapplyStatistics *copy);

/*
 * Since when the subscription is behind: the time at which the oldest transaction that
 * is not committed was committed on the publisher; without an apply worker, or while it
 * fails, at least the time at which everything received was committed.  0: it is not
 * behind, or, without an apply worker, that is not known.
 */
extern TimestampTz papply_statistics_behind_since(const PapplyProgress *progress,
												  bool is_running);

/* The clause that completes "because"; NULL for PAPPLY_REASON_NONE. */
extern const char *papply_statistics_reason_text(PapplyApplyReason reason);

/* Begin all counters of a subscription anew, if it has a place. */
extern void papply_statistics_reset(Oid subid);

#endif							/* PAPPLY_STATISTICS_H */
