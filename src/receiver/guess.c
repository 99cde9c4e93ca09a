/*-------------------------------------------------------------------------
 * guess.c
 *	  Does somebody on the publisher seem to wait for flushes?
 *
 * Runs in the receiver, while there is a pool, where the publisher does not say it
 * (ask.c), and where it was not set up for that when the stream began.
 *
 * So probably nobody does, and flushes are held for a moment.  But settings may have been
 * changed since, and a session may have its own.  A session that waits for the flush of
 * its commit commits nothing meanwhile, and goes on when it is flushed.  So if nothing
 * comes for some time, until there is a flush, and then something comes soon, and that
 * again and again, it is taken for sessions that wait, and a good number of commits are
 * flushed at once.
 *
 * To be wrong costs that moment for a session that waits while others do not, or that
 * thinks between its commits.  PostgreSQL's own apply lets it wait for wal_writer_delay.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"


#include "clock.h"
#include "guess.h"

/* Nothing came for so long, and something so long after the flush. */
#define SILENCE_MS 5
#define SOON_MS 5

/* So many times, and for so many commits; to be asked again costs a few per cent. */
#define TIMES 8
#define AT_ONCE 10000

static int64 committed_at = 0;	/* the last one */
static int64 flushed_at = 0;	/* after a silence, and nothing came since */
static bool is_ending = false;	/* there was a silence, and a flush is due */
static int	times = 0;			/* that something came soon */
static int	at_once = 0;		/* commits that are still flushed at once */

void
papply_guess_committed(uint64 count, int64 now)
{
	bool		is_soon = flushed_at != 0 &&
	!papply_clock_has_passed(flushed_at, now, SOON_MS);

	at_once -= Min(count, at_once);
	if (is_soon)
		times++;
	else if (is_ending || flushed_at != 0)
		times = 0;
	if (times == TIMES)
	{
		at_once = AT_ONCE;
		times = 0;
	}
	is_ending = false;
	flushed_at = 0;
	committed_at = now;
}

void
papply_guess_flushed(void)
{
	if (is_ending)
		flushed_at = papply_clock_now();
	is_ending = false;
}

bool
papply_guess_nobody_waits(void)
{
	return at_once == 0;
}

void
papply_guess_end(int64 now)
{
	is_ending = papply_clock_has_passed(committed_at, now, SILENCE_MS);
	if (!is_ending)
		times = 0;
}
