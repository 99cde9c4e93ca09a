/*-------------------------------------------------------------------------
 * writer_slot.h
 *	  What a pool has for each writer.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WRITER_SLOT_H
#define PAPPLY_WRITER_SLOT_H

#include "access/xlogdefs.h"
#include "port/atomics.h"
#include "storage/proc.h"

#include "parallel_apply.h"

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

	/* written by any process: the range to roll back, see exclusive.c */
	pg_atomic_uint64 unwanted_first;
	char		pad[PG_CACHE_LINE_SIZE];	/* keep slots in separate cache
											 * lines */
} PapplyWriterSlot;

#endif							/* PAPPLY_WRITER_SLOT_H */
