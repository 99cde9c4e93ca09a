/*-------------------------------------------------------------------------
 * room: any
 *
 * clock.h
 *	  A monotonic clock, for intervals.
 *
 * GetCurrentTimestamp() may go backward or jump, and an interval measured by
 * it would then last forever or end at once.  Times of this clock can be
 * compared between processes until the machine is restarted, and have no other
 * meaning.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CLOCK_H
#define PAPPLY_CLOCK_H

#include <time.h>

/*
 * Offset of the clock, some decades in microseconds, so that 0 is long ago
 * even just after a start of the machine.
 */
#define PAPPLY_CLOCK_START (INT64CONST(1) << 50)

#ifdef CLOCK_MONOTONIC_COARSE
#define PAPPLY_CLOCK_COARSE CLOCK_MONOTONIC_COARSE
#else
#define PAPPLY_CLOCK_COARSE CLOCK_MONOTONIC
#endif

static inline int64
papply_clock_read(clockid_t clock)
{
	struct timespec now;

	(void) clock_gettime(clock, &now);
	return PAPPLY_CLOCK_START + (int64) now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Return the time in microseconds. */
static inline int64
papply_clock_now(void)
{
	return papply_clock_read(CLOCK_MONOTONIC);
}

/*
 * Return the time of the last tick of the system, at most 10 milliseconds ago,
 * which takes a fraction of the instructions.  It is for long intervals, on
 * paths that each message takes.
 */
static inline int64
papply_clock_recent(void)
{
	return papply_clock_read(PAPPLY_CLOCK_COARSE);
}

/*
 * Have at least ms milliseconds passed between two times of this clock?  No,
 * if since is later, as it may be if now is the last tick.
 */
static inline bool
papply_clock_has_passed(int64 since, int64 now, int64 ms)
{
	return now - since >= ms * 1000;
}

#endif							/* PAPPLY_CLOCK_H */
