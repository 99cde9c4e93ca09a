/*-------------------------------------------------------------------------
 * subscriptions.c
 *	  The functions behind parallel_apply.subscriptions and
 *	  subscription_stats, and reset_stats().
 *
 * Runs in a user's backend.  Everything is read without blocking other
 * processes, so the columns of a row may be of slightly different moments.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "decoding.h"
#include "pool.h"
#include "result_rows.h"
#include "sql_common.h"
#include "statistics.h"
#include "table_statistics.h"

PG_FUNCTION_INFO_V1(papply_get_subscriptions);
PG_FUNCTION_INFO_V1(papply_get_subscription_stats);
PG_FUNCTION_INFO_V1(papply_reset_stats);

/* Columns of the counters, in the order of their enum. */
static const char *const counters[] = {
	"transactions",
	"native_transactions",
	"inserts",
	"updates",
	"deletes",
	"truncates",
	"batches",
	"failed_attempts",
	"retries",
	"commit_order_aborts",
	"errors",
	"exclusive_table",
	"exclusive_truncate",
	"exclusive_fallback",
	"refetches",
	"pool_stops",
	"fallback_sync",
	"fallback_table",
	"fallback_message",
	"fallback_failure",
	"fallback_subscription",
	"fallback_no_writer",
	"leader_transactions",
	"streamed_in_progress",
	"streamed_from_file",
	"dependency_waits",
	"commit_order_waits",
	"data_waits",
	"leader_waits",
	"lock_waits",
	"apply_time",
	"dependency_wait_time",
	"commit_order_wait_time",
	"data_wait_time",
	"leader_wait_time",
	"lock_wait_time"
};

StaticAssertDecl(lengthof(counters) == PAPPLY_COUNTERS, "each counter has a column");

/* A longer catch-up is not shown. */
#define MAX_CATCH_UP_S (1000.0 * 86400)

static void
set_interval(PapplyRow *row, const char *column, double seconds, bool is_null)
{
	Interval   *interval = palloc0(sizeof(Interval));

	if (!is_null)
		interval->time = (TimeOffset) (seconds * USECS_PER_SEC);
	papply_row_value(row, column, INTERVALOID, IntervalPGetDatum(interval), is_null);
}

/* Return the state of a subscription without writers: configured, or degraded. */
static const char *
name_of_native(PapplyApplyReason reason)
{
	switch (reason)
	{
		case PAPPLY_REASON_STARTING:
			return "starting";
		case PAPPLY_REASON_ONE_WRITER:
			return "native";
		default:
			return "degraded";
	}
}

static const char *
name_of_state(PapplyApplyState state, PapplyApplyReason reason)
{
	switch (state)
	{
		case PAPPLY_APPLY_NONE:
			return "not running";
		case PAPPLY_APPLY_NATIVE:
			return name_of_native(reason);
		case PAPPLY_APPLY_PARALLEL:
			return reason == PAPPLY_REASON_NONE ? "parallel" : "degraded";
		case PAPPLY_APPLY_STOPPING:
			return "stopping";
		case PAPPLY_APPLY_PAUSED:
			return "paused";
	}
	return NULL;
}

/*
 * Set state and reason.  A failure is shown until it is resolved, whether an
 * apply worker runs or not.
 */
static void
set_state(PapplyRow *row, const PapplyStatistics *statistics)
{
	const PapplyProgress *progress = &statistics->progress;
	PapplyApplyReason reason = progress->reason;

	/* the apply worker has not looked since CREATE EXTENSION */
	if (reason == PAPPLY_REASON_NO_EXTENSION)
		reason = PAPPLY_REASON_STARTING;
	if (progress->failure.kind != PAPPLY_FAILURE_NONE)
	{
		papply_row_text(row, "state", progress->failure.kind == PAPPLY_FAILURE_CONNECTION ?
						"disconnected" : "failing");
		papply_row_text(row, "reason",
						progress->failure.kind == PAPPLY_FAILURE_TRANSACTION ?
						statistics->failed.message :
						statistics->last_error.at != 0 ? statistics->last_error.message :
						"an error, which is in the server log");
		return;
	}
	papply_row_text(row, "state", name_of_state(progress->state, reason));
	papply_row_text(row, "reason",
					progress->state == PAPPLY_APPLY_NONE ? "no apply worker is running" :
					progress->state == PAPPLY_APPLY_PAUSED ? "parallel_apply.pause() has been called" :
					papply_statistics_reason_text(reason));
}

static void
set_rates(PapplyRow *row, const PapplyStatistics *statistics, double lag_s, bool is_running)
{
	const PapplyProgress *progress = &statistics->progress;
	int64		now = papply_clock_now();
	PapplySample base;
	bool		has_base = papply_statistics_rate_base(progress, now, &base);
	double		elapsed_us = has_base ? Max(now - base.taken_at, 1) : 1;
	TimestampTz oldest = progress->oldest_commit_time;
	double		rate = 0;
	double		gain = 0;
	double		catch_up_s = MAX_CATCH_UP_S;

	if (oldest == 0)
		oldest = GetCurrentTimestamp();
	if (has_base)
	{
		rate = (statistics->total_transactions - base.transactions) * USECS_PER_SEC / elapsed_us;

		/*
		 * seconds of the publisher that are applied in a second, and one for
		 * the clock
		 */
		gain = (oldest - base.oldest_commit_time) / elapsed_us - 1;
	}
	if (lag_s == 0)
		catch_up_s = 0;
	else if (gain > 0)
		catch_up_s = lag_s / gain;
	papply_row_value(row, "apply_rate", FLOAT8OID, Float8GetDatum(rate), !is_running);
	set_interval(row, "catch_up", catch_up_s, !is_running || catch_up_s >= MAX_CATCH_UP_S);
}

/* Set the lag.  The LSNs may be of different moments, hence the limits. */
static void
set_lag(PapplyRow *row, const PapplyStatistics *statistics, bool is_running)
{
	const PapplyProgress *progress = &statistics->progress;
	uint64		lag_bytes = 0;
	TimestampTz since = papply_statistics_behind_since(progress, is_running);
	double		lag_s = 0;

	if (progress->received_lsn > progress->committed_lsn)
		lag_bytes = progress->received_lsn - progress->committed_lsn;
	if (since != 0)
		lag_s = Max(0, (GetCurrentTimestamp() - since) / (double) USECS_PER_SEC);
	papply_row_int8(row, "lag_bytes", lag_bytes, !is_running);
	set_interval(row, "lag", lag_s, since == 0 && !is_running);
	set_rates(row, statistics, lag_s, is_running);
}

/* Set the size of the transactions in the queue, and what it can hold. */
static void
set_queue(PapplyRow *row, const PapplyStatistics *statistics, bool is_running)
{
	const PapplyProgress *progress = &statistics->progress;
	PapplyPool *pool = palloc0(sizeof(PapplyPool));
	bool		has_queue = papply_pool_get(statistics->subid, pool) && pool->queue.ring_bytes > 0;

	papply_row_int8(row, "queue_bytes", progress->queue_bytes, !is_running);
	papply_row_int8(row, "queue_transactions", progress->queue_transactions, !is_running);
	papply_row_int8(row, "max_bytes", pool->queue.ring_bytes, !has_queue);
	papply_row_int8(row, "max_transactions", pool->queue.transaction_slots, !has_queue);
	pfree(pool);
}

static void
put_state(PapplyRow *row, const PapplyStatistics *statistics)
{
	const PapplyProgress *progress = &statistics->progress;
	bool		is_running = statistics->receiver_pid != 0;

	papply_row_oid(row, "subid", statistics->subid);
	papply_row_value(row, "pid", INT4OID, Int32GetDatum(statistics->receiver_pid), !is_running);
	set_state(row, statistics);
	papply_row_text(row, "strict_reason", progress->state == PAPPLY_APPLY_PARALLEL ?
					papply_decoding_strict_reason() : NULL);
	set_queue(row, statistics, is_running);
	papply_row_lsn(row, "received_lsn", progress->received_lsn);
	papply_row_lsn(row, "dispatched_lsn", progress->dispatched_lsn);
	papply_row_lsn(row, "committed_lsn", progress->committed_lsn);
	papply_row_lsn(row, "flushed_lsn", progress->flushed_lsn);
	set_lag(row, statistics, is_running);
	papply_row_put(row);
}

static void
put_statistics(PapplyRow *row, const PapplyStatistics *statistics)
{
	papply_row_oid(row, "subid", statistics->subid);
	for (int i = 0; i < PAPPLY_FIRST_TIME; i++)
		papply_row_int8(row, counters[i], statistics->counts[i], false);
	for (int i = PAPPLY_FIRST_TIME; i < PAPPLY_COUNTERS; i++)
		papply_row_value(row, counters[i], FLOAT8OID, Float8GetDatum(statistics->counts[i] / 1000.0), false);
	papply_row_time(row, "last_error_time", statistics->last_error.at);
	papply_row_text(row, "last_error", statistics->last_error.at != 0 ? statistics->last_error.message : NULL);
	papply_row_time(row, "stats_reset", statistics->stats_reset);
	papply_row_put(row);
}

/*
 * Return a row for each subscription of the current database that has or had
 * an apply worker.
 */
static void
put_all(FunctionCallInfo fcinfo, void (*put) (PapplyRow *, const PapplyStatistics *))
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		if (papply_statistics_get(lfirst_oid(cell), statistics))
			put(row, statistics);
	}
}

/*
 * papply_get_subscriptions() returns what each subscription does.
 */
Datum
papply_get_subscriptions(PG_FUNCTION_ARGS)
{
	put_all(fcinfo, put_state);
	return (Datum) 0;
}

/*
 * papply_get_subscription_stats() returns what each has done since the last reset.
 */
Datum
papply_get_subscription_stats(PG_FUNCTION_ARGS)
{
	put_all(fcinfo, put_statistics);
	return (Datum) 0;
}

/*
 * papply_reset_stats(subscription) resets the statistics of a subscription or,
 * if it is NULL, of all subscriptions of the current database.
 */
Datum
papply_reset_stats(PG_FUNCTION_ARGS)
{
	Oid			subid = PG_ARGISNULL(0) ? InvalidOid : papply_sql_get_subscription(fcinfo, 0);

	papply_statistics_reset(subid);
	papply_table_statistics_reset(subid);
	PG_RETURN_VOID();
}
