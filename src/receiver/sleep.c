/*-------------------------------------------------------------------------
 * sleep.c
 *	  Decide where the receiver sleeps, and for how long.
 *
 * Runs in the receiver.  receiver.c does what is decided here.
 *
 * A receiver that has nothing to do sleeps here, or lets the core apply loop have a round:
 * it returns to the core apply loop, which does its housekeeping, and may sleep then.  A
 * round costs several system calls.  With traffic, there is one every PAPPLY_ROUND_MS, or
 * after a transaction that has come after a long sleep (then no sleep need be interrupted
 * for it).  There is another one after LONG_SLEEP_MS without traffic, in which the core
 * apply loop then sleeps, because it handles timeouts after sleeps of its own; it must do
 * so at once where a timeout is short:
 *
 *		ACTIVE --- 100 ms, or slow traffic -----> round, without a sleep ---> QUIET
 *		CALLED --- at once ---------------------> round, without a sleep ---> QUIET
 *		QUIET ---- 1 s, or a short timeout -----> round, with a sleep ------> ASLEEP
 *		ASLEEP --- at once ---------------------> round, with a sleep ------> ASLEEP
 *
 * QUIET and ASLEEP become ACTIVE when something is received or committed.  In a
 * transaction, and while a table is synchronized, the core apply loop may also sleep after
 * ACTIVE and CALLED.  CALLED: the latch was set while no writer had a reason to set it, so
 * another process, such as a worker that has synchronized a table, has woken the core
 * apply loop.
 *
 * If nothing may be read, because the queue is full or the core apply loop has to be
 * served first, there is always a round, and before that a sleep on the latch only.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "sleep.h"

/* The longest sleep, here and of the core apply loop. */
#define LONG_SLEEP_MS 1000

/* Must the core apply loop have a round before anything is read? */
static bool
is_round_due(const PapplySleepFacts *facts, long left_ms)
{
	if (facts->round.state == PAPPLY_ROUND_CALLED || left_ms <= 0)
		return true;
	if (facts->patience_ms >= 0)
		return false;
	if (facts->round.state == PAPPLY_ROUND_ACTIVE)
		return facts->is_slow && facts->is_at_rest;
	return facts->round.state == PAPPLY_ROUND_ASLEEP || facts->silence_ms < LONG_SLEEP_MS;
}

PapplySleepPlan
papply_sleep_plan(const PapplySleepFacts *facts, int64 now)
{
	PapplySleepPlan plan = {0};
	long		patience_ms = facts->patience_ms;
	bool		is_active = facts->round.state >= PAPPLY_ROUND_ACTIVE;
	long		left_ms;

	if (!facts->is_reading && patience_ms < 0 && facts->silence_ms <= LONG_SLEEP_MS / 2)
		patience_ms = facts->silence_ms;
	plan.core_loop_may_sleep = patience_ms < 0;
	if (!facts->is_reading)
	{
		plan.here_ms = Max(0, patience_ms);
		return plan;
	}

	/* Commits are confirmed in steps, at each quarter of what is in flight. */
	plan.wake_at = facts->in_flight == 0 ? 0 : facts->released + Max(1, facts->in_flight / 4);
	left_ms = (is_active ? PAPPLY_ROUND_MS : LONG_SLEEP_MS) - (now - facts->round.since) / 1000;
	if (!is_round_due(facts, left_ms))
		plan.here_ms = patience_ms >= 0 ? Min(left_ms, patience_ms) : left_ms;
	return plan;
}
