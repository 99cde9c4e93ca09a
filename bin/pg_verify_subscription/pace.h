/*-------------------------------------------------------------------------
 * pace.h
 *	  Keep the number of rows that are read in a second below a limit.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_PACE_H
#define VERIFY_PACE_H

typedef struct Pace
{
	int			rate;			/* rows per second; 0: no limit */
	double		free_at_ms;		/* when the next range may begin */
} Pace;

/* Return about how many rows a range should have. */
extern int	pace_range_rows(const Pace *pace);

/* Return for how many milliseconds no range may begin. */
extern double pace_delay(const Pace *pace, double now_ms);

/* Note that a range of about this many rows begins. */
extern void pace_begin(Pace *pace, double now_ms, double rows);

/* Note how many rows a range had that was noted with another number. */
extern void pace_correct(Pace *pace, double noted, double found);

#endif							/* VERIFY_PACE_H */
