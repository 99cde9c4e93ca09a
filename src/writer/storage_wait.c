/*-------------------------------------------------------------------------
 * storage_wait.c
 *	  Does this writer wait for storage?
 *
 * Runs in a writer.
 *
 * A page that is read comes either from the operating system's cache, at the
 * cost of copying it, or from a device, and then this process sleeps.  The
 * operating system counts how often the process has slept.  Sleeps in waits
 * for other writers are subtracted.  What remains, if pages are read at all,
 * are waits for storage (and for locks, which are an equally good reason to
 * let other writers run).
 *
 * As long as nothing is read, this costs comparing a counter for each batch.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "executor/instrument.h"

#include "clock.h"
#include "commit_order.h"
#include "read_ahead.h"

/*
 * Each batch with such a wait adds POINTS, up to MAX_POINTS, and each one
 * without subtracts one.  The writer counts as waiting for storage while
 * points remain.
 */
#define MAX_POINTS 16
#define POINTS 4

typedef struct Measured
{
	int			points;
	bool		has_read;		/* the last batch */
	int64		blocks_read;	/* before the batch */
	int64		sleeps;			/* before the batch, if has_read */
} Measured;

static Measured measured;

/* Return how often this process has slept, except for other writers. */
static int64
count_sleeps(void)
{
	return papply_process_use().sleeps - (int64) papply_commit_order_sleeps();
}

void
papply_storage_wait_begin(void)
{
	measured.blocks_read = pgBufferUsage.shared_blks_read;
	if (measured.has_read)
		measured.sleeps = count_sleeps();
}

PapplyStorage
papply_storage_wait_end(void)
{
	bool		was_measured = measured.has_read;

	measured.has_read = pgBufferUsage.shared_blks_read != measured.blocks_read;
	if (was_measured && measured.has_read && count_sleeps() > measured.sleeps)
		measured.points = Min(MAX_POINTS, measured.points + POINTS);
	else if (measured.points > 0)
		measured.points--;

	if (papply_read_ahead_is_on())
		return PAPPLY_STORAGE_AHEAD;
	return measured.points > 0 ? PAPPLY_STORAGE_SLOW : PAPPLY_STORAGE_FAST;
}
