/*-------------------------------------------------------------------------
 * selftest_pace.c
 *	  Test what depends on time, with a simulated publisher, for sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"

#include "../receiver/leader_policy.h"
#include "../receiver/pace.h"
#include "../receiver/sleep.h"
#include "clock.h"
#include "statistics.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_leader_policy);
PG_FUNCTION_INFO_V1(papply_selftest_pace);
PG_FUNCTION_INFO_V1(papply_selftest_pace_window);
PG_FUNCTION_INFO_V1(papply_selftest_rates);
PG_FUNCTION_INFO_V1(papply_selftest_sleep);

/* Time per message of the publisher, the receiver and the network. */
#define SEND_US 10
#define READ_US 1
#define TRANSIT_US 20

/* Send times of the messages between publisher and receiver */
#define MAX_BUFFERED 100000

typedef struct Link
{
	int			capacity;		/* capacity of the connection, in messages */
	int			left;			/* messages that the publisher still has */
	int64		next_at;		/* when it has the next one ready */
	int64		sent[MAX_BUFFERED]; /* a ring */
	uint64		first;
	uint64		end;
} Link;

/* The publisher sends until then, as long as there is space. */
static void
send_until(Link *link, int64 now)
{
	while (link->left > 0 && link->next_at + TRANSIT_US <= now &&
		   link->end - link->first < link->capacity)
	{
		link->sent[link->end++ % MAX_BUFFERED] = link->next_at;
		link->next_at += SEND_US;
		link->left--;
	}
}

/* Read everything that has arrived; return the time at which that is done. */
static int64
read_all(Link *link, PapplyPace *pace, int64 now, int64 skew_us)
{
	send_until(link, now);
	while (link->first < link->end)
	{
		papply_pace_read(pace, 100, link->sent[link->first % MAX_BUFFERED] + skew_us);
		link->first++;

		/* a publisher that had no space sends its next message now */
		if (link->end - link->first == link->capacity - 1)
			link->next_at = Max(link->next_at, now);
		now += READ_US;
		send_until(link, now);
	}
	return now;
}

/*
 * selftest_pace(capacity, messages, behind_ms, skew_s, later_capacity): the longest pause,
 * in microseconds, of the last hundred, with a publisher that has this many messages and is
 * this far behind, buffers that hold capacity messages and, unless later_capacity is 0,
 * that many after 150 pauses, and a publisher's clock that is ahead of ours.
 */
Datum
papply_selftest_pace(PG_FUNCTION_ARGS)
{
	int64		behind_us = PG_GETARG_INT32(2) * INT64CONST(1000);
	int64		skew_us = PG_GETARG_INT32(3) * USECS_PER_SEC;
	int			later_capacity = PG_GETARG_INT32(4);
	Link	   *link = palloc0(sizeof(Link));
	PapplyPace	pace = {0};
	int64		now = USECS_PER_SEC;
	int64		pause_us;
	int64		longest_us = 0;

	link->capacity = PG_GETARG_INT32(0);
	link->left = PG_GETARG_INT32(1);
	link->next_at = now;
	now += SEND_US + TRANSIT_US;
	for (int i = 0; i < 300; i++)
	{
		if (i == 150 && later_capacity != 0)
			link->capacity = later_capacity;
		now = read_all(link, &pace, now, skew_us);
		pause_us = papply_pace_next(&pace, now, behind_us);
		EXPECT(pause_us * 4 <= behind_us);
		if (i >= 200)
			longest_us = Max(longest_us, pause_us);
		now += Max(pause_us, SEND_US);
		papply_pace_woke(&pace, now);
	}
	pfree(link);
	PG_RETURN_INT64(longest_us);
}

/*
 * selftest_pace_window(round_trip_us, mb_per_s, segment_bytes): the receive buffer in kB;
 * 0: the kernel's.
 */
Datum
papply_selftest_pace_window(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(papply_pace_window(PG_GETARG_INT32(0), PG_GETARG_INT32(1) * 1e6,
									   PG_GETARG_INT32(2)) / 1024);
}

/*
 * selftest_leader_policy(): a receiver keeps up while there was nothing to
 * read a moment ago, which a busy machine may not let it find at the first
 * attempt; and how long writers apply everything after a slow transaction.
 */
Datum
papply_selftest_leader_policy(PG_FUNCTION_ARGS)
{
	int64		idle_at;
	int			attempts = 0;

	do
		idle_at = papply_leader_policy_idle();
	while (!papply_leader_policy_keeps_up() && ++attempts < 1000);
	EXPECT(attempts < 1000);
	while (!papply_clock_has_passed(idle_at, papply_clock_now(), 40))
		;
	EXPECT(!papply_leader_policy_keeps_up());

	/* the publisher is behind */
	EXPECT(papply_leader_policy_may_begin(1000));
	EXPECT(!papply_leader_policy_may_begin(40000));

	/* ten times as long as it took */
	EXPECT(papply_leader_policy_pause_ms(1900, 1900, true) == 0);
	EXPECT(papply_leader_policy_pause_ms(5000, 100, true) == 50);
	EXPECT(papply_leader_policy_pause_ms(300000, 100, true) == 1000);
	EXPECT(papply_leader_policy_pause_ms(5000, 4000, false) == 40);
	/* it had no processor */
	EXPECT(papply_leader_policy_pause_ms(5000, 100, false) == 0);
	PG_RETURN_VOID();
}

static void
add_sample(PapplyProgress *progress, int64 second, uint64 transactions)
{
	PapplySample *sample = &progress->samples[progress->samples_taken++ % PAPPLY_SAMPLES];

	sample->taken_at = second * USECS_PER_SEC;
	sample->transactions = transactions;
	sample->oldest_commit_time = sample->taken_at;
}

/* Is the base of rates at that second as if taken then, with that number of transactions? */
static bool
rates_begin(const PapplyProgress *progress, int64 second, int64 base_second, uint64 transactions)
{
	PapplySample base;

	return papply_statistics_rate_base(progress, second * USECS_PER_SEC, &base) &&
		base.taken_at == base_second * USECS_PER_SEC &&
		base.oldest_commit_time == base.taken_at && base.transactions == transactions;
}

/* selftest_rates(): rates are over the last seconds, also after a long time without any */
Datum
papply_selftest_rates(PG_FUNCTION_ARGS)
{
	PapplyProgress progress = {0};
	PapplySample base;

	EXPECT(!papply_statistics_rate_base(&progress, 0, &base));

	/* the first seconds, and then the last ones of a longer time */
	add_sample(&progress, 1000, 10);
	EXPECT(rates_begin(&progress, 1000, 1000, 10));
	add_sample(&progress, 1001, 20);
	EXPECT(rates_begin(&progress, 1002, 1000, 10));
	for (int i = 2; i < 20; i++)
		add_sample(&progress, 1000 + i, 10 + 10 * i);
	EXPECT(rates_begin(&progress, 1019, 1014, 150));

	/* an hour later: nothing, and then a transaction */
	EXPECT(rates_begin(&progress, 4600, 4599, 200));
	add_sample(&progress, 4600, 201);
	EXPECT(rates_begin(&progress, 4600, 4599, 200));
	EXPECT(rates_begin(&progress, 4605, 4599, 200));
	EXPECT(rates_begin(&progress, 4607, 4606, 201));
	PG_RETURN_VOID();
}

/* For how long does a receiver sleep here, that many milliseconds after its last round? */
static long
sleep_ms(PapplySleepFacts facts, PapplyRoundState state, int64 age_ms)
{
	int64		now = papply_clock_now();

	facts.round.state = state;
	facts.round.since = now - age_ms * 1000;
	return papply_sleep_plan(&facts, now).here_ms;
}

/*
 * selftest_sleep(): where a receiver sleeps, until when, and which commit wakes it
 */
Datum
papply_selftest_sleep(PG_FUNCTION_ARGS)
{
	PapplySleepFacts facts = {.is_reading = true};
	PapplySleepPlan plan;

	facts.is_at_rest = true;
	facts.patience_ms = -1;
	facts.silence_ms = 1000;

	/*
	 * with traffic, until the next round; without, for long, and then in the
	 * core apply loop
	 */
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 10) == 90);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 100) == 0);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_QUIET, 100) == 900);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_QUIET, 1000) == 0);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ASLEEP, 0) == 0);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_CALLED, 0) == 0);

	/*
	 * slow traffic has its round at once, unless a writer is about to set the
	 * latch
	 */
	facts.is_slow = true;
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 0) == 0);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_QUIET, 0) == 1000);
	facts.is_at_rest = false;
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 0) == 100);
	facts.is_slow = false;

	/* a short timeout */
	facts.silence_ms = 999;
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_QUIET, 0) == 0);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 0) == 100);

	/* it knows when */
	facts.patience_ms = 5;
	facts.is_slow = facts.is_at_rest = true;
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 0) == 5);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 98) == 2);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ACTIVE, 100) == 0);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_ASLEEP, 0) == 5);
	EXPECT(sleep_ms(facts, PAPPLY_ROUND_CALLED, 0) == 0);
	EXPECT(!papply_sleep_plan(&facts, 0).core_loop_may_sleep);

	/* commits wake it at each quarter of what is in flight */
	EXPECT(papply_sleep_plan(&facts, 0).wake_at == 0);
	facts.is_at_rest = false;
	facts.released = 7;
	facts.in_flight = 3;
	EXPECT(papply_sleep_plan(&facts, 0).wake_at == 8);
	facts.in_flight = 40;
	EXPECT(papply_sleep_plan(&facts, 0).wake_at == 17);

	/* with nothing that may be read: a round, after a sleep for a known time */
	facts.is_reading = false;
	plan = papply_sleep_plan(&facts, 0);
	EXPECT(plan.here_ms == 5 && !plan.core_loop_may_sleep);
	facts.patience_ms = 0;
	plan = papply_sleep_plan(&facts, 0);
	EXPECT(plan.here_ms == 0 && !plan.core_loop_may_sleep);
	facts.patience_ms = -1;
	plan = papply_sleep_plan(&facts, 0);
	EXPECT(plan.here_ms == 0 && plan.core_loop_may_sleep);
	facts.silence_ms = 500;
	plan = papply_sleep_plan(&facts, 0);
	EXPECT(plan.here_ms == 500 && !plan.core_loop_may_sleep);
	PG_RETURN_VOID();
}
