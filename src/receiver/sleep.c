/*-------------------------------------------------------------------------
 * sleep.c
 *	  Decide where the receiver sleeps, and for how long.
 *
 * Runs in the receiver, while there is a pool; papply_sleep_plan() also without one.
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
 * A message or a commit makes each state ACTIVE.  In a transaction, and while a table is
 * synchronized, the core apply loop may also sleep after ACTIVE and CALLED.
 *
 * If the latch is set while no writer has a reason to set it, another process, such as a
 * worker that has synchronized a table, has called the core apply loop.
 *
 * If nothing may be read, because the queue is full or the core apply loop has to be
 * served first, there is always a round, and before that a sleep on the latch only.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "clock.h"
#include "leader_policy.h"
#include "sleep.h"
#include "test_hooks.h"

/* The longest sleep, here and of the core apply loop. */
#define LONG_SLEEP_MS 1000

/* The traffic is slow if the receiver has slept for this time before a message. */
#define SLOW_TRAFFIC_MS 20

/* What papply_sleep_here() waits on; NULL: not yet needed. */
static WaitEventSet *events = NULL;

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
	PapplySleepPlan plan = {.is_reading = facts->is_reading};
	long		patience_ms = facts->patience_ms;
	bool		is_active = facts->round.state >= PAPPLY_ROUND_ACTIVE;
	long		left_ms;

	if (!facts->is_reading)
	{
		if (patience_ms < 0 && facts->silence_ms <= LONG_SLEEP_MS / 2)
			patience_ms = facts->silence_ms;
		plan.core_loop_may_sleep = patience_ms < 0;
		plan.here_ms = Max(0, patience_ms);
		return plan;
	}

	/* Commits are confirmed in steps, at each quarter of what is in flight. */
	plan.wake_at = facts->in_flight == 0 ? 0 : facts->released + Max(1, facts->in_flight / 4);
	plan.latch_calls = facts->is_at_rest;
	plan.core_loop_may_sleep = patience_ms < 0;

	left_ms = (is_active ? PAPPLY_ROUND_MS : LONG_SLEEP_MS) - (now - facts->round.since) / 1000;
	if (!is_round_due(facts, left_ms))
		plan.here_ms = patience_ms >= 0 ? Min(left_ms, patience_ms) : left_ms;
	return plan;
}

bool
papply_sleep_here(const PapplySleepPlan *plan, PapplyRound *round,
				  uint64 received, pgsocket socket)
{
	WaitEvent	event;
	int64		begin;
	bool		is_timeout;

	Assert(plan->is_reading && plan->here_ms > 0);
	if (events == NULL)
	{
		events = papply_compat_create_wait_event_set(3);
		AddWaitEventToSet(events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
		AddWaitEventToSet(events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
		AddWaitEventToSet(events, WL_SOCKET_READABLE, socket, NULL, NULL);
	}
	papply_test_count_wait();
	begin = papply_clock_now();
	is_timeout = WaitEventSetWait(events, plan->here_ms, &event, 1,
								  papply_compat_wait_event(PAPPLY_WAIT_WORK)) == 0;
	papply_test_count_sleep(round->state < PAPPLY_ROUND_ACTIVE, is_timeout);
	papply_leader_policy_slept();
	if (is_timeout)
		return true;
	if (round->state < PAPPLY_ROUND_ACTIVE)
		round->since = papply_clock_now();
	round->state = PAPPLY_ROUND_ACTIVE;
	if (event.events & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		if (plan->latch_calls)
			round->state = PAPPLY_ROUND_CALLED;
	}
	else if (papply_clock_has_passed(begin, papply_clock_now(), SLOW_TRAFFIC_MS))
		round->first_after_sleep = received + 1;
	return round->state != PAPPLY_ROUND_CALLED;
}
