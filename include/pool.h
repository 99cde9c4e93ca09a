/*-------------------------------------------------------------------------
 * pool.h
 *	  The shared memory of a receiver and its writers.
 *
 * PapplyPool is in the server's main shared memory, in the slot of the
 * subscription (slots.h).  The bytes and transactions of the queue are in a
 * dynamic shared memory segment, which is created and destroyed with the pool.
 *
 * Each part of the pool is declared in the header of the file that owns it.
 * Other files call the functions of that header, and otherwise only read
 * fields.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_POOL_H
#define PAPPLY_POOL_H

#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#include "claim.h"
#include "commit_order.h"
#include "exclusive.h"
#include "in_progress.h"
#include "origin.h"
#include "parallel_apply.h"
#include "queue.h"
#include "read_ahead.h"
#include "relation_registry.h"
#include "session_state.h"
#include "speedup.h"
#include "test_hooks.h"
#include "wal_flush.h"
#include "writer_slot.h"

/* What outlives a pool. */
typedef struct PapplyPoolHistory
{
	XLogRecPtr	fallback_final_lsn; /* remote transaction that must be a
									 * fallback */
	XLogRecPtr	refetched_final_lsn;	/* remote transaction that has neither
										 * been applied nor failed since it
										 * was fetched again, or
										 * InvalidXLogRecPtr */
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

	/* synchronizes itself; of registry */
	LWLock		registry_lock;

	/* From here on, fields are zeroed before a pool begins. */

	/* set once by the receiver, before writers start */
	Oid			dbid;
	Oid			subid;
	Oid			userid;			/* owner of the subscription */
	PGPROC	   *receiver_proc;
	pid_t		receiver_pid;

	/*
	 * The gate.  Writers commit only if they see it open.  The receiver
	 * closes it and waits for them to exit, so nothing is committed after
	 * papply_writers_end() has returned.
	 */
	bool		is_open;

	/* the parts, each of the file whose header declares it */
	PapplySharedOrigin origin;
	PapplySharedRegistry registry;
	PapplySharedSession session;

	/* atomic, because receiver and writers exchange them without a lock */
	pg_atomic_uint64 wanted_writers;	/* writers beyond this number exit */
	pg_atomic_uint64 exited_writer; /* number of a writer in
									 * PAPPLY_WRITER_EXITED */

	PapplySharedQueue queue;
	PapplySharedAwake awake;
	PapplySharedInProgress in_progress;
	PapplySharedReadAhead ahead;
	char		pad1[PG_CACHE_LINE_SIZE];	/* keep in separate cache lines
											 * what different processes write */
	PapplySharedFlush flush;
	char		pad2[PG_CACHE_LINE_SIZE];
	PapplySharedExclusive exclusive;
	PapplySharedOrder order;
	char		pad3[PG_CACHE_LINE_SIZE];
	PapplySpeedup speedup;
	char		pad4[PG_CACHE_LINE_SIZE];

#ifdef PAPPLY_SELFTEST
	PapplySharedTest test;
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

/* Background workers of the server that are running. */
typedef struct PapplyWorkerCounts
{
	int			writers;		/* of all pools */
	int			of_queries;
	int			others;
} PapplyWorkerCounts;

extern PapplyWorkerCounts papply_pool_count_workers(void);

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
 * Receiver: remember, or return, the remote transaction that is fetched again
 * for its size.  InvalidXLogRecPtr forgets it.
 */
extern void papply_pool_set_refetched(XLogRecPtr final_lsn);
extern XLogRecPtr papply_pool_get_refetched(void);

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
	return pg_atomic_read_u64(&papply_pool->order.committed_seqno);
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
