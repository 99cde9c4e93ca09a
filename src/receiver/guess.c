/*-------------------------------------------------------------------------
 * guess.c
 *	  Guess whether sessions of the publisher wait for flushes.
 *
 * Runs in the receiver, while there is a pool, if the publisher does not tell
 * (ask.c) and its settings did not make sessions wait when the stream began.
 *
 * So probably no session waits, and flushes are deferred for a moment.  But
 * settings may have been changed since, and a session may have its own.  A
 * session that waits for the flush of its commit commits nothing in the
 * meantime, and continues after the flush.  So if nothing is committed for
 * some time, until there is a flush, and something is committed soon after
 * that, and if this happens several times in a row, sessions are assumed to
 * wait, and a good number of commits are flushed at once.
 *
 * A wrong guess delays by PAPPLY_GUESS_HELD_MS a session that waits while
 * others do not, or that pauses between its commits.  PostgreSQL's own apply
 * lets such a session wait for wal_writer_delay.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"


#include "clock.h"
#include "guess.h"

/* A silence before the flush, and the time after it that counts as soon. */
#define SILENCE_MS 5
#define SOON_MS 5

/*
 * The number of such flushes in a row, and the number of commits that are then
 * flushed at once.  Trying again costs a few percent.
 */
#define TIMES 8
#define AT_ONCE 10000

static int64 committed_at = 0;	/* the last one */
static int64 flushed_at = 0;	/* after a silence, with no commit since */
static bool is_ending = false;	/* there was a silence, and a flush is due */
static int	times = 0;			/* such flushes in a row */
static int	at_once = 0;		/* commits that are still to be flushed at
								 * once */

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
