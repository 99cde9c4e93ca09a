/*-------------------------------------------------------------------------
 * slot_data.h
 *	  What the slot of a subscription has for the views: statistics, state and
 *	  hot keys.
 *
 * The functions are in statistics.h and hot_keys.h.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SLOT_DATA_H
#define PAPPLY_SLOT_DATA_H

#include "access/xlogdefs.h"
#include "datatype/timestamp.h"

#include "parallel_apply.h"

/*** statistics ***/

/*
 * Counters, in the order of the columns of parallel_apply.subscription_stats.
 * A new one needs an entry here, its name at the same position in
 * src/sql/subscriptions.c, and a column in the installation script.
 */
typedef enum PapplyCounter
{
	/* committed, by writers and by the core apply loop */
	PAPPLY_COUNT_TRANSACTIONS = 0,
	PAPPLY_COUNT_NATIVE_TRANSACTIONS,	/* by the core apply loop alone */
	PAPPLY_COUNT_INSERTS,
	PAPPLY_COUNT_UPDATES,
	PAPPLY_COUNT_DELETES,
	PAPPLY_COUNT_TRUNCATES,
	PAPPLY_COUNT_BATCHES,		/* local transactions of writers */

	/* failures that were overcome */
	PAPPLY_COUNT_FAILED_ATTEMPTS,	/* of writers */
	PAPPLY_COUNT_RETRIES,
	PAPPLY_COUNT_COMMIT_ORDER_ABORTS,
	PAPPLY_COUNT_ERRORS,

	/* transactions that were applied exclusively, by reason */
	PAPPLY_COUNT_EXCLUSIVE_TABLE,	/* the table is applied exclusively */
	PAPPLY_COUNT_EXCLUSIVE_TRUNCATE,
	PAPPLY_COUNT_EXCLUSIVE_FALLBACK,	/* the rows of a fallback are not
										 * known */
	PAPPLY_COUNT_REFETCHES,		/* fetched again for the core apply loop */
	PAPPLY_COUNT_POOL_STOPS,	/* stops of the pool */

	/* queued transactions that the core apply loop applied, by reason */
	PAPPLY_COUNT_FALLBACK_SYNC, /* a table is being synchronized */
	PAPPLY_COUNT_FALLBACK_TABLE,	/* writers cannot apply changes of the
									 * table */
	PAPPLY_COUNT_FALLBACK_MESSAGE,	/* writers cannot apply the message, or it
									 * is too large */
	PAPPLY_COUNT_FALLBACK_FAILURE,	/* a writer failed twice */
	PAPPLY_COUNT_FALLBACK_SUBSCRIPTION, /* skipped, disabled, or another owner */
	PAPPLY_COUNT_FALLBACK_NO_WRITER,
	PAPPLY_COUNT_LEADER_TRANSACTIONS,	/* small, and nothing else was in
										 * flight */

	/* streamed transactions that were committed */
	PAPPLY_COUNT_STREAMED_IN_PROGRESS,	/* a writer was already applying it at
										 * the commit */
	PAPPLY_COUNT_STREAMED_FROM_FILE,	/* from its file, after its end */

	/* waits of writers; the first four in the order of PapplyWriterState */
	PAPPLY_COUNT_WAITS_DEPENDENCY,
	PAPPLY_COUNT_WAITS_COMMIT_ORDER,
	PAPPLY_COUNT_WAITS_DATA,
	PAPPLY_COUNT_WAITS_LEADER,
	PAPPLY_COUNT_WAITS_LOCK,	/* estimated, see status.c */

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

/* The processes that apply a subscription. */
typedef enum PapplyApplyState
{
	PAPPLY_APPLY_NONE = 0,		/* none: there is no apply worker */
	PAPPLY_APPLY_NATIVE,		/* the core apply loop, for a reason */
	PAPPLY_APPLY_PARALLEL,		/* writers */
	PAPPLY_APPLY_STOPPING,		/* writers, but the pool is about to stop, for
								 * a reason */
	PAPPLY_APPLY_PAUSED			/* none, as configured */
} PapplyApplyState;

typedef enum PapplyApplyReason
{
	PAPPLY_REASON_NONE = 0,
	PAPPLY_REASON_STARTING,
	PAPPLY_REASON_NO_EXTENSION, /* not installed in the database */
	PAPPLY_REASON_ONE_WRITER,	/* only one writer is configured */
	PAPPLY_REASON_RETAIN_DEAD_TUPLES,
	PAPPLY_REASON_ROLE,			/* a trigger has set another
								 * session_replication_role */
	PAPPLY_REASON_STREAMING,	/* until the streamed transactions have ended */
	PAPPLY_REASON_NO_QUEUE,		/* there is no shared memory */
	PAPPLY_REASON_NO_WRITERS,	/* none could be started */
	PAPPLY_REASON_FEW_WRITERS	/* some could not be started; with
								 * PAPPLY_APPLY_PARALLEL */
} PapplyApplyReason;

/* What ended the last apply worker, until it is overcome. */
typedef enum PapplyFailureKind
{
	PAPPLY_FAILURE_NONE,
	PAPPLY_FAILURE_TRANSACTION, /* until final_lsn is committed or skipped */
	PAPPLY_FAILURE_CONNECTION,	/* until there is a connection */
	PAPPLY_FAILURE_OTHER		/* until there is a connection */
} PapplyFailureKind;

typedef struct PapplyFailure
{
	PapplyFailureKind kind;
	XLogRecPtr	final_lsn;		/* commit LSN on the publisher of the
								 * transaction that fails, whatever has ended
								 * the apply worker since; InvalidXLogRecPtr:
								 * none */
	TimestampTz behind_since;	/* see papply_statistics_behind_since() */
} PapplyFailure;

/* What the apply worker itself applies. */
typedef struct PapplyLeader
{
	bool		is_applying;	/* if so, the following fields describe a
								 * transaction */
	int64		began_at;		/* see clock.h; 0 if not known */
	TransactionId remote_xid;
	XLogRecPtr	final_lsn;
	TimestampTz commit_time;
	uint64		changes;		/* number of changes begun */
} PapplyLeader;

#define PAPPLY_FAILED_TEXT_LENGTH 512
#define PAPPLY_FAILED_KEY_LENGTH 256

/*
 * The transaction whose application by the apply worker failed last.  It
 * contains user data, which is only for users who can read the table.
 * PapplyFailure tells whether the failure is overcome.
 */
typedef struct PapplyFailedTransaction
{
	TransactionId remote_xid;
	XLogRecPtr	final_lsn;		/* InvalidXLogRecPtr if none */
	TimestampTz commit_time;	/* on the publisher; 0 if not known */
	TimestampTz first_failed_at;
	TimestampTz failed_at;		/* last time */
	uint32		attempts;
	uint64		changes;		/* begun, including the one that failed */
	int			sqlerrcode;
	char		message[PAPPLY_FAILED_TEXT_LENGTH];
	char		detail[PAPPLY_FAILED_TEXT_LENGTH];
	char		context[PAPPLY_FAILED_TEXT_LENGTH];
	char		kind;			/* of the message that failed */
	char		schema_name[NAMEDATALEN];	/* empty if not known */
	char		table_name[NAMEDATALEN];
	char		key[PAPPLY_FAILED_KEY_LENGTH];	/* empty if not known */

	/*
	 * the table that the error names, of which detail and context may have
	 * data
	 */
	char		error_schema_name[NAMEDATALEN]; /* empty if none */
	char		error_table_name[NAMEDATALEN];
} PapplyFailedTransaction;

/* A sample of the progress, to compute rates. */
typedef struct PapplySample
{
	int64		taken_at;		/* see clock.h */
	uint64		transactions;	/* committed; never reset */
	TimestampTz oldest_commit_time; /* the current time if there was none */
} PapplySample;

#define PAPPLY_SAMPLES 7

/* A sample is taken that often, as long as there is something to do. */
#define PAPPLY_SAMPLE_MS 1000

/*
 * The current state.  Written by the receiver alone, read without a lock.  So
 * fields may be of slightly different moments.
 */
typedef struct PapplyProgress
{
	PapplyApplyState state;
	PapplyApplyReason reason;
	PapplyFailure failure;
	PapplyLeader leader;

	/* in the publisher's WAL */
	XLogRecPtr	received_lsn;
	XLogRecPtr	dispatched_lsn; /* end of the last transaction in the queue */
	XLogRecPtr	committed_lsn;
	XLogRecPtr	flushed_lsn;

	uint64		queue_bytes;
	uint64		queue_transactions;

	/*
	 * Commit time on the publisher of the oldest transaction that has been
	 * received and is not committed; 0 if there is none.
	 */
	TimestampTz oldest_commit_time;

	/* Time when everything received was committed; checked once a second. */
	TimestampTz current_at;

	/*
	 * A ring, with at most one sample a second.  Readers ignore the oldest
	 * one.
	 */
	PapplySample samples[PAPPLY_SAMPLES];
	uint64		samples_taken;

#ifdef PAPPLY_SELFTEST
	uint64		routed_messages;	/* number that were processed, and not
									 * only watched */
#endif
} PapplyProgress;

/* The last error, with the message that is in the log if it is logged. */
typedef struct PapplyLastError
{
	TimestampTz at;				/* 0 if none */
	char		message[256];
} PapplyLastError;

/*
 * The last wait of the apply worker for a lock of which a part was counted.  While it
 * waits, processes that read the statistics count it, in the row of the apply worker.
 */
typedef struct PapplyLeaderWait
{
	TimestampTz began_at;
	TimestampTz counted_until;	/* DT_NOEND: it has ended */
} PapplyLeaderWait;

typedef struct PapplyCounterRow
{
	char		pad[PG_CACHE_LINE_SIZE];	/* keep rows in separate cache
											 * lines */
	uint64		counts[PAPPLY_COUNTERS];
} PapplyCounterRow;

/* In the slot of a subscription. */
typedef struct PapplySharedStatistics
{
	/* protected by the lock of the slots */
	uint64		base[PAPPLY_COUNTERS];	/* sums of the rows at the last reset */
	TimestampTz stats_reset;

	/* protected by error_mutex of the slot */
	PapplyLastError last_error;
	PapplyFailedTransaction failed;
	PapplyLeaderWait leader_wait;

	/* written by the receiver alone, read without a lock */
	PapplyProgress progress;

	/*
	 * each row written by its process alone, except for leader_wait; read
	 * without a lock
	 */
	PapplyCounterRow rows[PAPPLY_WAITERS];
} PapplySharedStatistics;

/*** keys for which transactions wait ***/

/* The key that makes a change depend on an older transaction. */
typedef struct PapplyKeyName
{
	uint32		is_old:1;		/* the key before the change, else the one
								 * after it */
	uint32		hash:31;		/* 0: the dependency is due to a barrier, not
								 * to a key */
	Oid			index;			/* a local unique index; InvalidOid: the
								 * replica identity */
} PapplyKeyName;

/* Bytes kept of a key's values, including the terminating zero byte. */
#define PAPPLY_KEY_VALUES_BYTES 128

/* Waits for one key, or for all keys of an index (hash 0). */
typedef struct PapplyHotKey
{
	Oid			relid;
	bool		is_barrier;		/* the waits are not for a key */
	PapplyKeyName key;			/* is_old is not used */
	uint64		waits;			/* 0: the entry is free */
	uint64		max_error;		/* at most this many of waits belong to other
								 * keys */
	uint64		us;				/* since the entry was created */
	TimestampTz last_wait;
	char		values[PAPPLY_KEY_VALUES_BYTES];
} PapplyHotKey;

/* Number of entries of a subscription for keys and for indexes. */
#define PAPPLY_HOT_KEYS 32
#define PAPPLY_HOT_INDEXES 16

typedef struct PapplyHotKeys
{
	PapplyHotKey keys[PAPPLY_HOT_KEYS];
	PapplyHotKey indexes[PAPPLY_HOT_INDEXES];
} PapplyHotKeys;

#endif							/* PAPPLY_SLOT_DATA_H */
