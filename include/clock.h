/*-------------------------------------------------------------------------
 * room: any
 *
 * clock.h
 *	  A clock that nobody sets, for intervals.
 *
 * What GetCurrentTimestamp() returns may go back, or jump: then an interval that was
 * measured by it lasts for ever, or is over at once.  Times of this clock can be compared
 * between processes, as long as the machine runs; nothing else can be made of them.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CLOCK_H
#define PAPPLY_CLOCK_H

#include "portability/instr_time.h"

/*
 * The machine may have been started just now, and 0 has to be long ago.  Some decades, in
 * microseconds.
 */
#define PAPPLY_CLOCK_START (INT64CONST(1) << 50)

/* Microseconds. */
static inline int64
papply_clock_now(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return PAPPLY_CLOCK_START + (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* Are there at least so many milliseconds between two of its times? */
static inline bool
papply_clock_has_passed(int64 since, int64 now, int64 ms)
{
	return now - since >= ms * 1000;
}

#endif							/* PAPPLY_CLOCK_H */
