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

#include "portability/instr_time.h"

/*
 * Offset of the clock, some decades in microseconds, so that 0 is long ago
 * even just after a start of the machine.
 */
#define PAPPLY_CLOCK_START (INT64CONST(1) << 50)

/* Return the time in microseconds. */
static inline int64
papply_clock_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return PAPPLY_CLOCK_START + (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* Have at least ms milliseconds passed between two times of this clock? */
static inline bool
papply_clock_has_passed(int64 since, int64 now, int64 ms)
{
	return now - since >= ms * 1000;
}

#endif							/* PAPPLY_CLOCK_H */
