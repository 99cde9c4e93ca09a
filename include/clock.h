/*-------------------------------------------------------------------------
 * clock.h
 *	  A monotonic clock, for intervals, and what a process has used.
 *
 * GetCurrentTimestamp() may go backward or jump, and an interval measured by
 * it would then last forever or end at once.  Times of this clock can be
 * compared between processes until the machine is restarted, and have no other
 * meaning.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CLOCK_H
#define PAPPLY_CLOCK_H

#include <sys/resource.h>
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

/* Has it happened less than ms milliseconds ago?  since is 0 if never. */
static inline bool
papply_clock_is_within(int64 since, int64 ms)
{
	return since != 0 && !papply_clock_has_passed(since, papply_clock_now(), ms);
}

/*
 * Has a state lasted for at least ms milliseconds?  *since is 0 if it has just
 * begun, and set to now then; the caller resets it when the state ends.
 */
static inline bool
papply_clock_has_lasted(int64 *since, int64 now, int64 ms)
{
	if (*since == 0)
		*since = now;
	return papply_clock_has_passed(*since, now, ms);
}

/*
 * Have at least ms milliseconds passed since *last?  If so, set *last to now,
 * for what is done at intervals.
 */
static inline bool
papply_clock_is_due(int64 *last, int64 now, int64 ms)
{
	if (!papply_clock_has_passed(*last, now, ms))
		return false;
	*last = now;
	return true;
}

/* What this process has used since it began. */
typedef struct PapplyProcessUse
{
	int64		cpu_us;
	int64		sleeps;
} PapplyProcessUse;

static inline PapplyProcessUse
papply_process_use(void)
{
	struct rusage usage;

	(void) getrusage(RUSAGE_SELF, &usage);
	return (PapplyProcessUse)
	{
		.cpu_us = (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * INT64CONST(1000000) +
			usage.ru_utime.tv_usec + usage.ru_stime.tv_usec,
			.sleeps = usage.ru_nvcsw
	};
}

#endif							/* PAPPLY_CLOCK_H */
