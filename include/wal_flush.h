/*-------------------------------------------------------------------------
 * wal_flush.h
 *	  Flush local commits, by a writer that can be spared.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WAL_FLUSH_H
#define PAPPLY_WAL_FLUSH_H

#include "port/atomics.h"

#include "parallel_apply.h"

/* Part of the pool.  Atomic, because writers take turns without a lock. */
typedef struct PapplySharedFlush
{
	pg_atomic_uint64 wanted_lsn;	/* end of the last local commit */
	pg_atomic_uint32 flusher;	/* 1 + writer that flushes, or 0 */
	pg_atomic_uint32 is_held;	/* set by the receiver: due_flush.c */
} PapplySharedFlush;

/*
 * Writer between two transactions: flush commits, while no other writer does
 * and this one can be spared.  The receiver's latch is set after each flush.
 */
extern void papply_wal_flush_if_spare(void);

/* Is there a commit that is not flushed and should be flushed now? */
extern bool papply_wal_flush_is_wanted(void);

/* Receiver: forbid or allow flushes by writers.  Allowing wakes no writer. */
extern void papply_wal_flush_hold(bool holds);

/*
 * Receiver: is a writer flushing, or has one been woken for it?  If false, no
 * writer will flush soon.
 */
extern bool papply_wal_flush_is_active(void);
extern bool papply_wal_flush_wake_writer(void);

#endif							/* PAPPLY_WAL_FLUSH_H */
