/*-------------------------------------------------------------------------
 * read_ahead.h
 *	  Ask storage for the pages of changes that will be applied later.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_READ_AHEAD_H
#define PAPPLY_READ_AHEAD_H

#include "port/atomics.h"

#include "parallel_apply.h"

/*
 * Part of the pool: observations of the writers.  A lost update does not
 * matter.
 */
typedef struct PapplySharedReadAhead
{
	pg_atomic_uint32 slow_points;
	pg_atomic_uint32 slow_read_us;
	pg_atomic_uint32 reading_ranges;
	pg_atomic_uint32 quiet_ranges;
} PapplySharedReadAhead;

/*
 * Begin a range of claimed transactions.  is_allowed: pages may be read ahead,
 * because it is the first attempt.
 */
extern void papply_read_ahead_begin(uint64 first, uint64 last, bool is_allowed);

/*
 * Call before each change, in a local transaction.  position is that of the
 * next entry.  Waits only for I/O.  May throw what converting a key throws,
 * and does not look at that change again.
 */
extern void papply_read_ahead(uint64 position);

/* Is storage slow, and its latency hidden by reading ahead? */
extern bool papply_read_ahead_is_on(void);

/* End the range: all of its transactions have been applied. */
extern void papply_read_ahead_end(void);

#endif							/* PAPPLY_READ_AHEAD_H */
