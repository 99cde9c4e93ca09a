/*-------------------------------------------------------------------------
 * pool.h
 *	  The shared memory of a receiver and its writers.
 *
 * PapplyPool is in the server's main shared memory, in the slot of the
 * subscription (slots.h).  The bytes and transactions of the queue are in a
 * dynamic shared memory segment, which is created and destroyed with the pool.
 *
 * The files of src/shmem, src/order and src/session_state change what several
 * processes write.  Processes use the functions of pool.h, queue.h,
 * commit_order.h and relation_registry.h for that, and otherwise only read
 * fields, or write those that are theirs.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_POOL_H
#define PAPPLY_POOL_H

#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/dsa.h"

#include "message.h"
#include "parallel_apply.h"
#include "spool_file.h"

/* State of a writer.  Order of values = order of life. */
typedef enum PapplyWriterState
{
	PAPPLY_WRITER_NONE = 0,		/* no process; the receiver starts one */
	PAPPLY_WRITER_STARTING,		/* registered; the writer itself changes this */
	PAPPLY_WRITER_IDLE,			/* waits for a transaction to claim */
	PAPPLY_WRITER_APPLYING,		/* runs, or waits in the lock manager */
	PAPPLY_WRITER_WAIT_DEPENDENCY,	/* for the commit of an older transaction
									 * that wrote the same row */
	PAPPLY_WRITER_WAIT_TURN,	/* for the commit of all older transactions */
	PAPPLY_WRITER_WAIT_DATA,	/* for the rest of a large transaction */
	PAPPLY_WRITER_WAIT_LEADER,	/* for the leader to apply a transaction */
	PAPPLY_WRITER_FAILED,		/* could not start; the receiver retries later */
	PAPPLY_WRITER_EXITED		/* exited on its own; the receiver ends the
								 * pool */
} PapplyWriterState;

/* Counters of a writer.  Only the writer writes them; read without a lock. */
typedef struct PapplyWriterCounters
{
	uint64		transactions;	/* remote transactions committed */
	uint64		rows;			/* row changes in them */
	uint64		prefetched;		/* pages requested by reading ahead */
	uint64		fallbacks;		/* transactions left to the leader */
	uint64		retries;		/* second attempts, made in turn */
	uint64		commit_order_aborts;	/* rollbacks in favor of the oldest
										 * transaction */
} PapplyWriterCounters;

typedef struct PapplyWriterSlot
{
	/* written by the writer alone, read by any process without a lock */
	PGPROC	   *proc;			/* NULL unless attached */
	pid_t		pid;
	PapplyWriterState state;
	uint64		first_seqno;	/* the claimed range, or PAPPLY_NO_SEQNO */
	uint64		last_seqno;
	TransactionId remote_xid;	/* of the transaction that it works on */
	XLogRecPtr	remote_final_lsn;
	int64		began_at;		/* start of the claimed range, or of its retry */
	uint64		changes_done;	/* in the claimed range */
	uint64		changes_received;	/* those received so far */
	pg_atomic_uint64 applied_first; /* start of the range that may hold locks,
									 * or PAPPLY_NO_SEQNO */
	PapplyWriterCounters counters;

	/* written by the receiver alone, read by any process without a lock */
	uint64		lock_wait_us;	/* estimated, see status.c */

	/*
	 * The writer no longer needs any byte of the ring before this position.
	 * Atomic, because the receiver reuses the space of a transaction larger
	 * than the queue up to here while the writer works on it.
	 */
	pg_atomic_uint64 read_position;

	/* written by any process: the range to roll back, see retreat.c */
	pg_atomic_uint64 recalled_first;
	char		pad[PG_CACHE_LINE_SIZE];	/* keep slots in separate cache
											 * lines */
} PapplyWriterSlot;

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

/* Waiters of papply_commit_order_advance(): the writers, then the receiver. */
#define PAPPLY_WAITER_RECEIVER PAPPLY_MAX_WRITERS
#define PAPPLY_WAITERS (PAPPLY_MAX_WRITERS + 1)

/* Number of pool sizes for which speedup.c makes an estimate. */
#define PAPPLY_SPEEDUPS 10

/*
 * Written by the receiver alone, read by any process without a lock.  Only
 * must_reset is set by any process and cleared by the receiver.
 */
typedef struct PapplySpeedup
{
	bool		must_reset;
	uint64		transactions;	/* number of transactions in the estimate */
	double		work;			/* time that one writer would need for them */
	double		time[PAPPLY_SPEEDUPS];	/* and that papply_speedup_writers()
										 * would */
} PapplySpeedup;

/* What outlives a pool. */
typedef struct PapplyPoolHistory
{
	XLogRecPtr	fallback_final_lsn; /* remote transaction that must be a
									 * fallback */
	int64		lack_at;		/* when memory for definitions ran out, or 0 */
	int			lack_ms;		/* time for which no pool is started after
								 * that */
	int64		short_at;		/* when there was last no worker slot for a
								 * writer that has work, or 0; receivers of
								 * other pools read it without a lock */
} PapplyPoolHistory;

typedef struct PapplyPool
{
	/* protected by the lock of the slots */
	bool		in_use;
	uint32		generation;		/* number of pools that this slot has had */

	/* synchronizes itself; relation_registry.c */
	LWLock		registry_lock;

	/* From here on, fields are zeroed before a pool begins. */

	/* set once by the receiver, before writers start */
	Oid			dbid;
	Oid			subid;
	Oid			userid;			/* owner of the subscription */
	PapplyOriginId origin;
	XLogRecPtr	origin_lsn;		/* origin.c; written by the owner of the
								 * origin's session */
	PGPROC	   *receiver_proc;
	pid_t		receiver_pid;
	dsm_handle	queue_handle;
	dsa_handle	registry_handle;
	uint64		ring_bytes;
	uint32		transaction_slots;

	/*
	 * The gate.  Writers commit only if they see it open.  The receiver
	 * closes it and waits for them to exit, so nothing is committed after
	 * papply_writers_end() has returned.
	 */
	bool		is_open;

	/* relation_registry.c; protected by registry_lock */
	dsa_pointer registry;
	uint32		registry_length;
	uint32		registry_capacity;
	uint32		registry_last_version;
	uint32		settings_version;	/* first_settings.c; set before writers
									 * start; 0: none */

	/* atomic, because receiver and writers hand over work without a lock */
	pg_atomic_uint64 wanted_writers;	/* writers beyond this number exit */
	pg_atomic_uint64 exited_writer; /* number of a writer in
									 * PAPPLY_WRITER_EXITED */
	pg_atomic_uint64 published_seqno;	/* receiver -> writers: may be claimed */
	pg_atomic_uint64 write_position;	/* receiver -> writers: may be read */
	char		pad1[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 next_claim;	/* between writers */
	pg_atomic_uint64 ahead_position;	/* between writers: everything before
										 * was looked at, or need not be */

	/* awake.c: one bit per writer, and the limit */
	pg_atomic_uint64 present_writers;
	pg_atomic_uint64 idle_writers;	/* writers that sleep until there is work */
	pg_atomic_uint64 ahead_writers; /* see PapplyStorage */
	pg_atomic_uint64 slow_writers;
	pg_atomic_uint32 awake_limit;

	/* in_progress.c: one bit per writer that has a streamed transaction */
	pg_atomic_uint64 in_progress_writers;
	PapplyInProgress in_progress[PAPPLY_MAX_IN_PROGRESS];
	pg_atomic_uint64 exclusive_seqno;	/* nothing is applied in progress
										 * before this is committed */
	pg_atomic_uint32 single_session;	/* session_state.c: does only the
										 * receiver run user code? */
	pg_atomic_uint32 has_session_settings;	/* session_state.c: does it keep
											 * settings? */

	/*
	 * read_ahead.c: observations of the writers; a lost update does not
	 * matter
	 */
	pg_atomic_uint32 slow_points;
	pg_atomic_uint32 slow_read_us;
	pg_atomic_uint32 reading_ranges;
	pg_atomic_uint32 quiet_ranges;

	pg_atomic_uint64 data_waiter;	/* 1 + writer that sleeps for bytes, or 0 */
	pg_atomic_uint64 space_waiter;	/* receiver sleeps until read_position
									 * reaches this, or 0 */
	char		pad2[PG_CACHE_LINE_SIZE];

	/* atomic, because writers take turns without a lock: wal_flush.c */
	pg_atomic_uint64 wanted_flush_lsn;	/* end of the last local commit */
	pg_atomic_uint32 flusher;	/* 1 + writer that flushes, or 0 */
	pg_atomic_uint32 holds_flush;	/* set by the receiver: due_flush.c */
	char		pad3[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 committed_seqno;	/* commit_order.c */
	pg_atomic_uint32 replication_role;	/* replication_role.c */
	pg_atomic_uint64 retreat_seqno; /* retreat.c */
	char		pad4[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 waiting_for[PAPPLY_WAITERS];	/* commit_order.c: the
													 * process sleeps until
													 * committed_seqno is
													 * this; or 0 */

	char		pad5[PG_CACHE_LINE_SIZE];
	PapplySpeedup speedup;		/* see above */
	char		pad6[PG_CACHE_LINE_SIZE];

#ifdef PAPPLY_SELFTEST
	pg_atomic_uint64 test_waits[PAPPLY_WAITERS];	/* test_hooks.h */
	pg_atomic_uint64 test_long_sleeps;
	pg_atomic_uint64 test_timeouts;
#endif

	PapplyWriterSlot writers[PAPPLY_MAX_WRITERS];
} PapplyPool;

/* The pool that this process is part of, or NULL. */
extern PapplyPool *papply_pool;

/* Index of this writer in papply_pool->writers; PAPPLY_WAITER_RECEIVER in the receiver. */
extern int	papply_pool_waiter;

/*
 * Begin a pool in the slot of this receiver, and set papply_pool.  Returns
 * false if the receiver has no slot.
 */
extern bool papply_pool_acquire(Oid userid, PapplyOriginId origin);

/*
 * Set papply_pool to a pool in the memory of this process, for a transaction
 * that is applied without a receiver and a queue.  The caller becomes its only
 * writer.
 */
extern void papply_pool_create_private(Oid dbid, Oid subid, Oid userid);

/* Close the gate: no writer that has not passed it yet can commit. */
extern void papply_pool_close(void);

/* End the pool.  No writer may be attached. */
extern void papply_pool_release(void);

/* Are there fewer than max_writers writers, in all pools of the server? */
extern bool papply_pool_has_room(int max_writers);

/*
 * Mark a writer as starting, unless there are max_writers in all pools.
 * Returns false in that case.
 */
extern bool papply_pool_claim_writer(int writer, int max_writers);

/*
 * Return how many writers of this pool must exit so that there are max_writers
 * in all pools.  The pools that have most of them give up theirs.
 */
extern int	papply_pool_surplus(int max_writers);

/*
 * Receiver: note whether there is no worker slot for a writer that has work.  Was
 * there none for another receiver less than ms milliseconds ago?
 */
extern void papply_pool_note_short(bool is_short);
extern bool papply_pool_is_other_short(int64 ms);

/* Return the bgw_main_arg by which a writer finds its pool. */
extern Datum papply_pool_writer_argument(int writer);

/*
 * Attach this process as the writer that the argument identifies.  Returns
 * false if the pool is gone, closed or a different one.
 */
extern bool papply_pool_attach_writer(Datum argument, uint32 generation);

/*
 * Receiver: remember, or return, the remote transaction that PostgreSQL's own
 * apply must apply, without an attempt of a writer.
 */
extern void papply_pool_set_fallback(XLogRecPtr final_lsn);
extern XLogRecPtr papply_pool_get_fallback(void);

/*
 * Receiver: remember, or check, that dynamic shared memory for a pool ran out,
 * so that none should be started: for a minute, and for twice the previous
 * time at each further call.
 */
extern void papply_pool_note_lack(void);
extern bool papply_pool_has_lacked(void);

/* Set the state of this writer, which other processes can read. */
extern void papply_pool_set_state(PapplyWriterState state);

/*
 * Copy the pool of a subscription of this database, for views, without a lock
 * on its fields.  Returns false if it has none.
 */
extern bool papply_pool_get(Oid subid, PapplyPool *copy);

/*
 * Return the next pool of the server other than papply_pool, without a lock.
 * *n must be 0 at first.  Returns NULL if there is no further pool.
 */
extern PapplyPool *papply_pool_next_other(int *n);

/* Should this writer exit, because fewer are wanted? */
extern bool papply_pool_is_retired(void);

/*
 * May this process sleep?  To be called after it has set its mark, just before
 * it waits.  The event that set its latch may have been lost, because another
 * wait, of ours or of the server, reset the latch.
 */
extern bool papply_pool_may_sleep(void);

/* See papply_pool_create_private(). */
static inline bool
papply_pool_is_private(void)
{
	return papply_pool->receiver_proc == NULL;
}

/*
 * Return the newest transaction such that it and all older ones are committed
 * and visible.
 */
static inline uint64
papply_pool_committed(void)
{
	return pg_atomic_read_u64(&papply_pool->committed_seqno);
}

/* Has a transaction that is not committed made younger ones roll back (retreat.c)? */
static inline bool
papply_pool_has_retreat(void)
{
	return pg_atomic_read_u64(&papply_pool->retreat_seqno) > papply_pool_committed();
}

/* The slot of this writer. */
static inline PapplyWriterSlot *
papply_pool_my_writer_slot(void)
{
	Assert(papply_pool_waiter < PAPPLY_MAX_WRITERS);
	return &papply_pool->writers[papply_pool_waiter];
}

/*
 * Writer, in a signal handler: interrupt its work, or its wait, by an error.
 * Does not change errno.
 */
extern void papply_pool_cancel(void);

/* The bit of this writer in a mask of writers. */
static inline uint64
papply_pool_my_bit(void)
{
	Assert(papply_pool_waiter < PAPPLY_MAX_WRITERS);
	return UINT64CONST(1) << papply_pool_waiter;
}

/* Set the latch of the receiver or of a writer, if that is attached. */
extern void papply_pool_wake(int waiter);

#endif							/* PAPPLY_POOL_H */
