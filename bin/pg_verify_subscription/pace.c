/*-------------------------------------------------------------------------
 * pace.c
 *	  Keep the number of rows that are read in a second below a limit.
 *
 * Pure: the caller says what time it is.
 *
 * A range is read as fast as the servers can, and after it begins, none begins for the
 * time that its rows take at the limit.  Ranges hold the rows of a second at most.  Time in
 * which nothing could be read, because of a lock for example, is not caught up.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "pace.h"
#include "ranges.h"

/* Shorter ranges would cost more than they spare. */
#define MIN_RANGE_ROWS 100

int
pace_range_rows(const Pace *pace)
{
	return pace->rate == 0 ? RANGE_ROWS : Max(MIN_RANGE_ROWS, Min(pace->rate, RANGE_ROWS));
}

double
pace_delay(const Pace *pace, double now_ms)
{
	return pace->rate == 0 ? 0 : Max(pace->free_at_ms - now_ms, 0);
}

void
pace_begin(Pace *pace, double now_ms, double rows)
{
	if (pace->rate > 0)
		pace->free_at_ms = Max(pace->free_at_ms, now_ms) + rows / pace->rate * 1000;
}

void
pace_correct(Pace *pace, double noted, double found)
{
	pace_begin(pace, pace->free_at_ms, found - noted);
}
