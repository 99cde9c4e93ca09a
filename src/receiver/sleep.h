/*-------------------------------------------------------------------------
 * sleep.h
 *	  Decide where the receiver sleeps, and for how long.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SLEEP_H
#define PAPPLY_SLEEP_H

/* The core apply loop does its housekeeping at least this often while there is traffic. */
#define PAPPLY_ROUND_MS 100

/* What has happened since the last round of the core apply loop; see sleep.c. */
typedef enum PapplyRoundState
{
	PAPPLY_ROUND_ASLEEP,		/* nothing, and the core apply loop may sleep */
	PAPPLY_ROUND_QUIET,			/* nothing */
	PAPPLY_ROUND_ACTIVE,		/* something was received or committed */
	PAPPLY_ROUND_CALLED			/* the latch was set for the core apply loop */
} PapplyRoundState;

typedef struct PapplyRound
{
	PapplyRoundState state;
	int64		since;			/* when the core apply loop called again, or
								 * something happened first in a sleep here;
								 * 0: it is about to call */
	uint64		first_after_sleep;	/* the number of the first transaction
									 * that follows a long sleep; 0: none */
} PapplyRound;

/* What the receiver knows when it has nothing to do. */
typedef struct PapplySleepFacts
{
	PapplyRound round;
	bool		is_reading;		/* the connection is empty; otherwise nothing
								 * may be read from it */
	long		patience_ms;	/* when there is something to do; 0: it is for
								 * the core apply loop; -1: not known */
	int			silence_ms;		/* papply_report_silence_ms() */

	/* only if is_reading */
	bool		is_slow;		/* one transaction was received since a long
								 * sleep, and is complete */
	bool		is_at_rest;		/* no writer has a reason to set the latch */
	uint64		released;		/* the last transaction that was released */
	uint64		in_flight;		/* complete transactions that were not */
} PapplySleepFacts;

/*
 * If is_reading and here_ms is not 0, the receiver sleeps on its latch and the connection,
 * and looks again for something to do.  Otherwise the core apply loop has its round,
 * before which the receiver may sleep on its latch.
 */
typedef struct PapplySleepPlan
{
	long		here_ms;		/* at most; 0: do not sleep here */
	bool		core_loop_may_sleep;	/* in a round that follows */
	uint64		wake_at;		/* the commit that wakes the receiver; 0: none */
} PapplySleepPlan;

/* Plan the next sleep.  Has no effects. */
extern PapplySleepPlan papply_sleep_plan(const PapplySleepFacts *facts, int64 now);

#endif							/* PAPPLY_SLEEP_H */
