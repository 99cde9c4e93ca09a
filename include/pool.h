/*-------------------------------------------------------------------------
 * room: pool
 *
 * pool.h
 *	  The shared memory of a receiver and its writers.
 *
 * PapplyPool lives in the server's main shared memory, one for each leader
 * apply worker that may exist; the queue's bytes and transactions live in a
 * dynamic shared memory segment that comes and goes with the pool.
 *
 * Only the files of src/pool touch the fields; processes use the verbs of
 * pool.h, queue.h, commit_order.h and relation_registry.h.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_POOL_H
#define PAPPLY_POOL_H

#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "storage/dsm.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/spin.h"
#include "utils/dsa.h"

#include "message.h"
#include "parallel_apply.h"
#include "spool_file.h"

/* What a writer does.  Order of values = order of life. */
typedef enum PapplyWriterState
{
	PAPPLY_WRITER_NONE = 0,		/* no such process; the receiver starts one */
	PAPPLY_WRITER_STARTING,		/* registered; the process itself goes on */
	PAPPLY_WRITER_IDLE,			/* waits for a transaction to claim */
	PAPPLY_WRITER_APPLYING,		/* works, or waits in the lock manager */
	PAPPLY_WRITER_WAIT_DEPENDENCY,	/* for the commit of an older transaction
									 * that wrote the same row */
	PAPPLY_WRITER_WAIT_TURN,	/* for the commit of all older transactions */
	PAPPLY_WRITER_WAIT_DATA,	/* for the rest of a large transaction */
	PAPPLY_WRITER_WAIT_REPLAY,	/* for the receiver to replay a transaction
								 * natively */
	PAPPLY_WRITER_FAILED,		/* could not start; the receiver tries again
								 * later */
	PAPPLY_WRITER_EXITED		/* gone without having been asked to; the
								 * receiver ends the pool */
} PapplyWriterState;

/* Counters of a writer: written by it alone, read without a lock. */
typedef struct PapplyWriterCounters
{
	uint64		transactions;	/* remote transactions committed */
	uint64		rows;			/* changes in them */
	uint64		prefetched;		/* pages that storage was asked for ahead */
	uint64		fallbacks;		/* transactions given up for native replay */
	uint64		retries;		/* second attempts, in turn */
	uint64		commit_order_aborts;	/* roll-backs in favour of the oldest */
} PapplyWriterCounters;

typedef struct PapplyWriterSlot
{
	/* written by the writer alone, read without a lock by anybody */
	PGPROC	   *proc;			/* NULL unless attached */
	pid_t		pid;
	PapplyWriterState state;
	uint64		first_seqno;	/* the claimed range, or PAPPLY_NO_SEQNO */
	uint64		last_seqno;
	TransactionId remote_xid;	/* what it works on */
	XLogRecPtr	remote_final_lsn;
	int64		began_at;		/* the claimed range, or to try it again */
	uint64		changes_done;	/* of the claimed range */
	uint64		changes_received;	/* those that have been received */
	pg_atomic_uint64 applied_first; /* of the range that may have locks now,
									 * or PAPPLY_NO_SEQNO */
	PapplyWriterCounters counters;

	/* written by the receiver alone, read likewise */
	uint64		lock_wait_us;	/* estimated: see status.c */

	/*
	 * Position in the byte ring up to which the writer needs nothing any
	 * more.  Atomic, because the receiver reuses the space of a transaction
	 * larger than the queue up to here while the writer goes on.
	 */
	pg_atomic_uint64 read_position;

	/* written by anybody: the range to roll back, see retreat.c */
	pg_atomic_uint64 recalled_first;
	char		pad[PG_CACHE_LINE_SIZE];	/* keep neighbours apart */
} PapplyWriterSlot;

/* What becomes of a streamed transaction: see early.c. */
typedef enum PapplyEarlyKind
{
	PAPPLY_EARLY_NONE = 0,		/* the place is free */
	PAPPLY_EARLY_OFFERED,
	PAPPLY_EARLY_TAKEN,			/* a writer applies it */
	PAPPLY_EARLY_GIVEN_UP,		/* the writer has rolled it back */
	PAPPLY_EARLY_REVOKED,		/* the receiver wants it to be rolled back */
	PAPPLY_EARLY_ENDED			/* it is in the queue */
} PapplyEarlyKind;

/* So many at a time. */
#define PAPPLY_MAX_EARLY 8

typedef struct PapplyEarly
{
	pg_atomic_uint32 state;		/* a kind, and the writer that has it */

	/* written by the receiver before it offers it */
	TransactionId xid;
	PapplySpoolFile file;

	/* written by the receiver; atomic: its writer follows */
	pg_atomic_uint64 bytes;		/* of the file, that may be read */

	/* written by the receiver before it says that it has ended */
	uint64		seqno;
	PapplyCommit commit;
} PapplyEarly;

/* Whom papply_commit_order_advance() wakes: writers, then the receiver. */
#define PAPPLY_WAITER_RECEIVER PAPPLY_MAX_WRITERS
#define PAPPLY_WAITERS (PAPPLY_MAX_WRITERS + 1)

/* For how many writers it is estimated what they would gain; see gain.c. */
#define PAPPLY_GAINS 10

/*
 * Written by the receiver alone, read without a lock by anybody; but for
 * must_reset, which anybody sets and the receiver clears.
 */
typedef struct PapplyGain
{
	bool		must_reset;
	uint64		transactions;	/* that it was estimated from */
	double		work;			/* time that one writer would take for them */
	double		time[PAPPLY_GAINS]; /* and so many as papply_gain_writers() */
} PapplyGain;

typedef struct PapplyPool
{
	/* protected by the directory's lock (pool.c) */
	bool		in_use;
	Oid			subid;			/* kept after release, with replay_final_lsn */
	XLogRecPtr	replay_final_lsn;	/* this remote transaction goes to the
									 * native loop; survives the receiver */
	int64		lack_at;		/* there was no memory for definitions; 0:
								 * never; survives the receiver */
	int			lack_ms;		/* and no pool shall start for so long */
	uint32		generation;		/* counts the pools in this place */

	/* set once by the receiver, before writers start */
	Oid			dbid;
	Oid			userid;			/* owner of the subscription */
	PapplyOriginId origin;
	XLogRecPtr	origin_lsn;		/* origin.c; written by who has the session */
	PGPROC	   *receiver_proc;
	pid_t		receiver_pid;
	dsm_handle	queue_handle;
	dsa_handle	registry_handle;
	uint64		ring_bytes;
	uint32		transaction_slots;

	/*
	 * The gate.  Writers commit after they saw it open; the receiver closes
	 * it and waits for them to be gone.  Hence nothing is committed once
	 * papply_writers_end() has returned.
	 */
	bool		is_open;

	/* relation_registry.c; protected by registry_lock */
	LWLock		registry_lock;
	dsa_pointer registry;
	uint32		registry_length;
	uint32		registry_capacity;
	uint32		registry_last_version;

	/* atomic, because receiver and writers pass work without a lock */
	pg_atomic_uint32 configured_writers;	/* there may be so many */
	pg_atomic_uint64 wanted_writers;	/* writers beyond this number leave */
	pg_atomic_uint64 exited_writer; /* number of one in PAPPLY_WRITER_EXITED */
	pg_atomic_uint64 published_seqno;	/* receiver -> writers: may be claimed */
	pg_atomic_uint64 write_position;	/* receiver -> writers: may be read */
	pg_atomic_uint64 announced_seqno;	/* receiver -> one writer: about to be
										 * published, or 0 */
	pg_atomic_uint32 announced_in_vain; /* times in a row */
	char		pad1[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 next_claim;	/* writers among themselves */
	pg_atomic_uint64 ahead_position;	/* writers among themselves: all
										 * before was looked at ahead, or need
										 * not */

	/* awake.c: a bit per writer, and how many may be awake */
	pg_atomic_uint64 present_writers;
	pg_atomic_uint64 idle_writers;	/* sleep until there is work for them */
	pg_atomic_uint64 ahead_writers; /* see PapplyStorage */
	pg_atomic_uint64 slow_writers;
	pg_atomic_uint32 awake_limit;

	/* early.c: a bit per writer that has one */
	pg_atomic_uint64 early_writers;
	PapplyEarly early[PAPPLY_MAX_EARLY];
	pg_atomic_uint64 alone_seqno;	/* nothing is applied early before this is
									 * committed */
	pg_atomic_uint32 has_session_locks; /* session_locks.c: the receiver keeps
										 * some */
	pg_atomic_uint32 has_session_settings;	/* session_settings.c: likewise */

	/*
	 * read_ahead.c: what writers have found out; a lost change does not
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
	char		pad4[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 committed_seqno;	/* commit_order.c */
	pg_atomic_uint32 replication_role;	/* replication_role.c */
	pg_atomic_uint64 retreat_seqno; /* retreat.c */
	char		pad3[PG_CACHE_LINE_SIZE];
	pg_atomic_uint64 waiting_for[PAPPLY_WAITERS];	/* commit_order.c: sleeps
													 * until committed_seqno
													 * is this, or 0 */

	char		pad5[PG_CACHE_LINE_SIZE];
	PapplyGain	gain;			/* see above */
	char		pad6[PG_CACHE_LINE_SIZE];

	PapplyWriterSlot writers[PAPPLY_MAX_WRITERS];
} PapplyPool;

/* The pool that this process is part of, or NULL. */
extern PapplyPool *papply_pool;

/* Index of this writer in papply_pool->writers; PAPPLY_WAITER_RECEIVER in the receiver. */
extern int	papply_pool_waiter;

/* Hooks for _PG_init: ask for and find the directory. */
extern void papply_pool_request_shmem(void);
extern void papply_pool_init_shmem(void);

/*
 * Take a free place in the directory for a subscription; the caller becomes
 * its receiver.  Returns false if there is none.  papply_pool is set.
 */
extern bool papply_pool_acquire(Oid dbid, Oid subid, Oid userid, PapplyOriginId origin);

/* Close the gate: what does not commit already does not begin to. */
extern void papply_pool_close(void);

/* Give the place back; no writer may be attached any more. */
extern void papply_pool_release(void);

/* Where a writer finds its pool: for bgw_main_arg. */
extern Datum papply_pool_writer_argument(int writer);

/*
 * Attach this process as the writer named by the argument.  Returns false if
 * the pool is gone, closed or another one.
 */
extern bool papply_pool_attach_writer(Datum argument, uint32 generation);

/* Remember, or ask, which remote transaction of subid must be replayed natively. */
extern void papply_pool_set_replay(XLogRecPtr final_lsn);
extern XLogRecPtr papply_pool_get_replay(Oid subid);

/*
 * Remember, or ask, that there was no dynamic shared memory for what a pool of subid needs,
 * so that none shall start: for a minute, and twice as long at each further time.
 */
extern void papply_pool_note_lack(void);
extern bool papply_pool_has_lacked(Oid subid);

/* State of this writer, for others to see. */
extern void papply_pool_set_state(PapplyWriterState state);

/*
 * Copy the next pool of the current database without a lock on its fields, for
 * views; *n is 0 at first.  Returns false when there is no other one.
 */
extern bool papply_pool_peek_here(int *n, PapplyPool *copy);

/*
 * The writer of a pool that has claimed a transaction, or NULL.  Without a
 * lock, a hint.
 */
extern PapplyWriterSlot *papply_pool_writer_of(PapplyPool *pool, uint64 seqno);

/*
 * If pid is a writer of another pool that waits in its commit order: the
 * processes that could make it go on, at most two.  Without a lock, a hint.
 */
extern int	papply_pool_order_blockers(int pid, int *blockers);

/*
 * For views: the process whose commit, data or replay a writer of pool waits
 * for, or 0.  A hint.
 */
extern int	papply_pool_awaited_pid(PapplyPool *pool, int writer);

/* The receiver of that subscription, if it has a pool, shall estimate anew. */
extern void papply_pool_reset_gain(Oid subid);

/* Fewer writers are wanted: this one shall leave. */
extern bool papply_pool_is_retired(void);

/*
 * A writer asks this before it sleeps, after it has said that it will.  What set
 * its latch may have been lost: to the reset after another wait, of ours or in
 * the server.
 */
extern bool papply_pool_may_sleep(void);

/* The place of this writer. */
static inline PapplyWriterSlot *
papply_pool_my_slot(void)
{
	return &papply_pool->writers[papply_pool_waiter];
}

/* Writer, in a signal handler: end what it does, or waits for, with an error. */
extern void papply_pool_cancel(void);

/* This writer in a mask of writers. */
static inline uint64
papply_pool_my_bit(void)
{
	return UINT64CONST(1) << papply_pool_waiter;
}

/* Set the latch of the receiver, or of a writer, if it is attached. */
extern void papply_pool_wake(int waiter);

#endif							/* PAPPLY_POOL_H */
