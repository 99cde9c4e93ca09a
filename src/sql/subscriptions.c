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
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "result_rows.h"
#include "slots.h"
#include "sql_common.h"
#include "statistics.h"
#include "table_statistics.h"

PG_FUNCTION_INFO_V1(papply_get_subscriptions);
PG_FUNCTION_INFO_V1(papply_get_subscription_stats);
PG_FUNCTION_INFO_V1(papply_reset_stats);

static const PapplyResultColumn state_columns[] = {
	{"subid", OIDOID},
	{"pid", INT4OID},
	{"state", TEXTOID},
	{"reason", TEXTOID},
	{"queue_bytes", INT8OID},
	{"queue_transactions", INT8OID},
	{"received_lsn", PG_LSNOID},
	{"dispatched_lsn", PG_LSNOID},
	{"committed_lsn", PG_LSNOID},
	{"flushed_lsn", PG_LSNOID},
	{"lag_bytes", INT8OID},
	{"lag", INTERVALOID},
	{"apply_rate", FLOAT8OID},
	{"catch_up", INTERVALOID}
};

/*
 * The columns between the first and the last three are the counters, in the
 * order of their enum.
 */
static const PapplyResultColumn statistics_columns[] = {
	{"subid", OIDOID},
	{"transactions", INT8OID},
	{"native_transactions", INT8OID},
	{"inserts", INT8OID},
	{"updates", INT8OID},
	{"deletes", INT8OID},
	{"truncates", INT8OID},
	{"batches", INT8OID},
	{"failed_attempts", INT8OID},
	{"retries", INT8OID},
	{"commit_order_aborts", INT8OID},
	{"errors", INT8OID},
	{"exclusive_table", INT8OID},
	{"exclusive_truncate", INT8OID},
	{"exclusive_fallback", INT8OID},
	{"refetches", INT8OID},
	{"pool_stops", INT8OID},
	{"fallback_sync", INT8OID},
	{"fallback_table", INT8OID},
	{"fallback_message", INT8OID},
	{"fallback_failure", INT8OID},
	{"fallback_subscription", INT8OID},
	{"fallback_no_writer", INT8OID},
	{"leader_transactions", INT8OID},
	{"streamed_in_progress", INT8OID},
	{"streamed_from_file", INT8OID},
	{"dependency_waits", INT8OID},
	{"commit_order_waits", INT8OID},
	{"data_waits", INT8OID},
	{"leader_waits", INT8OID},
	{"lock_waits", INT8OID},
	{"apply_time", FLOAT8OID},
	{"dependency_wait_time", FLOAT8OID},
	{"commit_order_wait_time", FLOAT8OID},
	{"data_wait_time", FLOAT8OID},
	{"leader_wait_time", FLOAT8OID},
	{"lock_wait_time", FLOAT8OID},
	{"last_error_time", TIMESTAMPTZOID},
	{"last_error", TEXTOID},
	{"stats_reset", TIMESTAMPTZOID}
};

StaticAssertDecl(lengthof(statistics_columns) == PAPPLY_COUNTERS + 4,
				 "each counter has a column");

/* Columns of the wider result. */
#define MAX_COLUMNS lengthof(statistics_columns)

/* A longer catch-up is not shown. */
#define MAX_CATCH_UP_S (1000.0 * 86400)

/* A result row under construction. */
typedef struct Row
{
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];
	int			columns;
} Row;

static void
add_value(Row *row, Datum value, bool is_null)
{
	row->values[row->columns] = value;
	row->nulls[row->columns] = is_null;
	row->columns++;
}

static void
add_text(Row *row, const char *text)
{
	add_value(row, text ? CStringGetTextDatum(text) : (Datum) 0, text == NULL);
}

static void
add_lsn(Row *row, XLogRecPtr lsn)
{
	add_value(row, LSNGetDatum(lsn), XLogRecPtrIsInvalid(lsn));
}

static void
add_interval(Row *row, double seconds, bool is_null)
{
	Interval   *interval = palloc0(sizeof(Interval));

	if (!is_null)
		interval->time = (TimeOffset) (seconds * USECS_PER_SEC);
	add_value(row, IntervalPGetDatum(interval), is_null);
}

/* Return the state of a subscription without writers: configured, or degraded. */
static const char *
name_of_native(PapplyApplyReason reason)
{
	switch (reason)
	{
		case PAPPLY_REASON_STARTING:
			return "starting";
		case PAPPLY_REASON_NO_EXTENSION:
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
 * Add state and reason.  A failure is shown until it is resolved, whether an
 * apply worker runs or not.
 */
static void
add_state(Row *row, const PapplyStatistics *statistics)
{
	const PapplyProgress *progress = &statistics->progress;

	if (progress->failure.kind != PAPPLY_FAILURE_NONE)
	{
		add_text(row, progress->failure.kind == PAPPLY_FAILURE_CONNECTION ?
				 "disconnected" : "failing");
		add_text(row, statistics->last_error.at != 0 ? statistics->last_error.message :
				 "an error, which is in the server log");
		return;
	}
	add_text(row, name_of_state(progress->state, progress->reason));
	if (progress->state == PAPPLY_APPLY_NONE)
		add_text(row, "no apply worker is running");
	else if (progress->state == PAPPLY_APPLY_PAUSED)
		add_text(row, "parallel_apply.pause() has been called");
	else
		add_text(row, papply_statistics_reason_text(progress->reason));
}

static void
add_rates(Row *row, const PapplyStatistics *statistics, double lag_s, bool is_running)
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
	add_value(row, Float8GetDatum(rate), !is_running);
	add_interval(row, catch_up_s, !is_running || catch_up_s >= MAX_CATCH_UP_S);
}

/* Add the lag.  The LSNs may be of different moments, hence the limits. */
static void
add_lag(Row *row, const PapplyStatistics *statistics, bool is_running)
{
	const PapplyProgress *progress = &statistics->progress;
	uint64		lag_bytes = 0;
	TimestampTz since = papply_statistics_behind_since(progress, is_running);
	double		lag_s = 0;

	if (progress->received_lsn > progress->committed_lsn)
		lag_bytes = progress->received_lsn - progress->committed_lsn;
	if (since != 0)
		lag_s = Max(0, (GetCurrentTimestamp() - since) / (double) USECS_PER_SEC);
	add_value(row, Int64GetDatum(lag_bytes), !is_running);
	add_interval(row, lag_s, since == 0 && !is_running);
	add_rates(row, statistics, lag_s, is_running);
}

static void
add_progress(Row *row, const PapplyStatistics *statistics, bool is_running)
{
	const PapplyProgress *progress = &statistics->progress;

	add_value(row, Int64GetDatum(progress->queue_bytes), !is_running);
	add_value(row, Int64GetDatum(progress->queue_transactions), !is_running);
	add_lsn(row, progress->received_lsn);
	add_lsn(row, progress->dispatched_lsn);
	add_lsn(row, progress->committed_lsn);
	add_lsn(row, progress->flushed_lsn);
	add_lag(row, statistics, is_running);
}

static void
put_state(PapplyResultRows *rows, const PapplyStatistics *statistics)
{
	bool		is_running = statistics->receiver_pid != 0;
	Row			row = {.columns = 0};

	add_value(&row, ObjectIdGetDatum(statistics->subid), false);
	add_value(&row, Int32GetDatum(statistics->receiver_pid), !is_running);
	add_state(&row, statistics);
	add_progress(&row, statistics, is_running);
	Assert(row.columns == lengthof(state_columns));
	papply_result_rows_put(rows, row.values, row.nulls);
}

static void
put_statistics(PapplyResultRows *rows, const PapplyStatistics *statistics)
{
	bool		has_error = statistics->last_error.at != 0;
	Row			row = {.columns = 0};

	add_value(&row, ObjectIdGetDatum(statistics->subid), false);
	for (int i = 0; i < PAPPLY_FIRST_TIME; i++)
		add_value(&row, Int64GetDatum(statistics->counts[i]), false);
	for (int i = PAPPLY_FIRST_TIME; i < PAPPLY_COUNTERS; i++)
		add_value(&row, Float8GetDatum(statistics->counts[i] / 1000.0), false);
	add_value(&row, TimestampTzGetDatum(statistics->last_error.at), !has_error);
	add_text(&row, has_error ? statistics->last_error.message : NULL);
	add_value(&row, TimestampTzGetDatum(statistics->stats_reset), false);
	Assert(row.columns == lengthof(statistics_columns));
	papply_result_rows_put(rows, row.values, row.nulls);
}

/*
 * Return a row for each subscription of the current database that has or had
 * an apply worker.
 */
static void
put_all(PapplyResultRows *rows, void (*put) (PapplyResultRows *, const PapplyStatistics *))
{
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
		if (papply_statistics_get(lfirst_oid(cell), statistics))
		put(rows, statistics);
}

/*
 * papply_get_subscriptions() returns what each subscription does.
 */
Datum
papply_get_subscriptions(PG_FUNCTION_ARGS)
{
	put_all(papply_result_rows_begin(fcinfo, state_columns, lengthof(state_columns)), put_state);
	return (Datum) 0;
}

/*
 * papply_get_subscription_stats() returns what each has done since the last reset.
 */
Datum
papply_get_subscription_stats(PG_FUNCTION_ARGS)
{
	put_all(papply_result_rows_begin(fcinfo, statistics_columns, lengthof(statistics_columns)),
			put_statistics);
	return (Datum) 0;
}

static void
reset_all(Oid subid)
{
	papply_statistics_reset(subid);
	papply_table_statistics_reset(subid);
}

/*
 * papply_reset_stats(subscription) resets the statistics of a subscription or,
 * if it is NULL, of all subscriptions of the current database.
 */
Datum
papply_reset_stats(PG_FUNCTION_ARGS)
{
	ListCell   *cell;

	if (!PG_ARGISNULL(0))
	{
		reset_all(papply_sql_get_subscription(fcinfo, 0));
		PG_RETURN_VOID();
	}
	foreach(cell, papply_slots_subscriptions())
		reset_all(lfirst_oid(cell));
	PG_RETURN_VOID();
}
