/*-------------------------------------------------------------------------
 * storage_wait.c
 *	  Does this writer wait for storage?
 *
 * Runs in a writer.
 *
 * A page that is read comes from memory of the operating system, at the cost of
 * copying it, or from a device, and then this process sleeps.  The system counts
 * how often it has slept; what it has slept in waits for other writers is not
 * counted, so what remains, where pages are read at all, are waits for storage
 * (and for locks, which are as good a reason for others to go on).
 *
 * Where nothing is read, this costs the comparison of a counter for each batch.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <sys/resource.h>

#include "executor/instrument.h"

#include "commit_order.h"
#include "read_ahead.h"
#include "storage_wait.h"

/* Batches without such a wait, until it is believed that there are no more. */
#define MAX_POINTS 16
#define POINTS 4

static int	points = 0;
static bool has_read = false;	/* the last time */
static int64 blocks_read;
static int64 sleeps;

/* Times that this process has slept, but for other writers. */
static int64
count_sleeps(void)
{
	struct rusage usage;

	if (getrusage(RUSAGE_SELF, &usage) != 0)
		return 0;
	return (int64) usage.ru_nvcsw - (int64) papply_commit_order_sleeps();
}

void
papply_storage_wait_begin(void)
{
	blocks_read = pgBufferUsage.shared_blks_read;
	if (has_read)
		sleeps = count_sleeps();
}

PapplyStorage
papply_storage_wait_end(void)
{
	bool		was_measured = has_read;

	has_read = pgBufferUsage.shared_blks_read != blocks_read;
	if (was_measured && has_read && count_sleeps() > sleeps)
		points = Min(MAX_POINTS, points + POINTS);
	else if (points > 0)
		points--;

	if (papply_read_ahead_is_on())
		return PAPPLY_STORAGE_AHEAD;
	return points > 0 ? PAPPLY_STORAGE_SLOW : PAPPLY_STORAGE_FAST;
}
