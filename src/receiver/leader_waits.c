/*-------------------------------------------------------------------------
 * leader_waits.c
 *	  Count waits for locks of the apply worker itself.
 *
 * Runs in the receiver.
 *
 * Waits of writers are seen from outside, by the receiver (status.c).  The
 * receiver cannot see its own, because the process sleeps.  But the lock
 * manager starts the timer of deadlock_timeout before it sleeps, and the
 * server remembers when that timer was last started.  If this has changed when
 * the core apply loop asks for the next message, the core apply loop has
 * waited.  So a transaction that does not wait costs one comparison for each
 * message, and the clock is not read.
 *
 * The end of the wait is not known.  It is taken to be the time of the next
 * call, so the rest of that change is included.  If one change waits several
 * times, for instance in a trigger, only its last wait is counted.
 *
 * Writers are counted as waiting once a second, and so is the apply worker: by
 * the seconds of the clock that begin during its wait.  Its time is measured,
 * not estimated.  While it waits, statistics.c counts for those that look.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "leader_waits.h"
#include "statistics.h"

typedef struct LeaderWaits
{
	bool		is_on;			/* in a transaction */
	TimestampTz began_at;		/* of the last wait, also of earlier
								 * transactions */
	uint64		waited_us;		/* in this transaction */
} LeaderWaits;

static LeaderWaits waits;

void
papply_leader_waits_begin(void)
{
	waits.is_on = true;
	waits.began_at = get_timeout_start_time(DEADLOCK_TIMEOUT);
	waits.waited_us = 0;
}

void
papply_leader_waits_end(void)
{
	waits.is_on = false;
}

void
papply_leader_waits_look(void)
{
	TimestampTz began_at = get_timeout_start_time(DEADLOCK_TIMEOUT);
	TimestampTz ended_at;

	if (!waits.is_on || began_at == waits.began_at)
		return;
	waits.began_at = began_at;
	ended_at = Max(began_at, GetCurrentTimestamp());	/* the clock may have
														 * been set back */
	papply_statistics_end_wait(began_at, ended_at);
	waits.waited_us += ended_at - began_at;
}

uint64
papply_leader_waits_us(void)
{
	return waits.waited_us;
}
