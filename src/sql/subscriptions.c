/*-------------------------------------------------------------------------
 * subscriptions.c
 *	  The functions behind parallel_apply.subscriptions and subscription_stats, and
 *	  reset_stats().
 *
 * Runs in a user's backend.  Everything is read without stopping anybody, so
 * that columns of a row may be of slightly different moments.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"

#include "hot_keys.h"
#include "sql_common.h"
#include "statistics.h"
#include "table_statistics.h"

PG_FUNCTION_INFO_V1(papply_get_subscriptions);
PG_FUNCTION_INFO_V1(papply_get_subscription_stats);
PG_FUNCTION_INFO_V1(papply_reset_stats);

/* Those of the wider one, the statistics. */
#define MAX_COLUMNS (4 + PAPPLY_COUNTERS)

/* A catch-up that takes longer is none. */
#define MAX_CATCH_UP_S (1000.0 * 86400)

/* A row that is being made. */
typedef struct Row
{
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];
	int			columns;
} Row;

static void
add(Row *row, Datum value, bool is_null)
{
	row->values[row->columns] = value;
	row->nulls[row->columns] = is_null;
	row->columns++;
}

static void
add_text(Row *row, const char *text)
{
	add(row, text ? CStringGetTextDatum(text) : (Datum) 0, text == NULL);
}

static void
add_lsn(Row *row, XLogRecPtr lsn)
{
	add(row, LSNGetDatum(lsn), XLogRecPtrIsInvalid(lsn));
}

static void
add_interval(Row *row, double seconds, bool is_null)
{
	Interval   *interval = palloc0(sizeof(Interval));

	if (!is_null)
		interval->time = (TimeOffset) (seconds * USECS_PER_SEC);
	add(row, IntervalPGetDatum(interval), is_null);
}

static const char *
name_of_state(PapplyApplyState state)
{
	switch (state)
	{
		case PAPPLY_APPLY_NONE:
			return "not running";
		case PAPPLY_APPLY_NATIVE:
			return "native";
		case PAPPLY_APPLY_PARALLEL:
			return "parallel";
		case PAPPLY_APPLY_STOPPING:
			return "stopping";
		case PAPPLY_APPLY_PAUSED:
			return "paused";
	}
	return NULL;
}

static const char *
name_of_reason(PapplyApplyReason reason)
{
	switch (reason)
	{
		case PAPPLY_REASON_NONE:
			return NULL;
		case PAPPLY_REASON_STARTING:
			return "writers are about to be started";
		case PAPPLY_REASON_NO_EXTENSION:
			return "the extension is not installed in this database";
		case PAPPLY_REASON_ONE_WRITER:
			return "one writer is configured";
		case PAPPLY_REASON_RETAIN_DEAD_TUPLES:
			return "the subscription has retain_dead_tuples";
		case PAPPLY_REASON_ROLE:
			return "a function has set session_replication_role for the session";
		case PAPPLY_REASON_STREAMING:
			return "a streamed transaction has begun without writers";
		case PAPPLY_REASON_NO_QUEUE:
			return "no shared memory for the queue";
		case PAPPLY_REASON_NO_WRITERS:
			return "no writers could be started";
	}
	return NULL;
}

/* How far it is behind: LSNs may be of different moments, hence the limits. */
static void
add_lag(Row *row, const PapplyProgress *progress, bool is_running)
{
	uint64		lag_bytes = progress->received_lsn > progress->committed_lsn ?
	progress->received_lsn - progress->committed_lsn : 0;
	TimestampTz since = progress->oldest_commit_time;
	double		lag_s = since == 0 ? 0 :
	Max(0, (GetCurrentTimestamp() - since) / (double) USECS_PER_SEC);
	double		gain = progress->catch_up_speed - 1;
	double		catch_up_s = lag_s == 0 ? 0 : gain > 0 ? lag_s / gain : MAX_CATCH_UP_S;

	add(row, Int64GetDatum(lag_bytes), !is_running);
	add_interval(row, lag_s, !is_running);
	add(row, Float8GetDatum(progress->transactions_per_s), !is_running);
	add_interval(row, catch_up_s, !is_running || catch_up_s >= MAX_CATCH_UP_S);
}

static void
add_progress(Row *row, const PapplyProgress *progress, bool is_running)
{
	add_text(row, name_of_state(progress->state));
	add_text(row, name_of_reason(progress->reason));
	add(row, Int32GetDatum(progress->wanted_writers), !is_running);
	add(row, Int64GetDatum(progress->queue_bytes), !is_running);
	add(row, Int64GetDatum(progress->queue_transactions), !is_running);
	add_lsn(row, progress->received_lsn);
	add_lsn(row, progress->dispatched_lsn);
	add_lsn(row, progress->committed_lsn);
	add_lsn(row, progress->flushed_lsn);
	add_lag(row, progress, is_running);
}

static void
put_row(ReturnSetInfo *result, Row *row)
{
	Assert(row->columns == result->setDesc->natts);
	tuplestore_putvalues(result->setResult, result->setDesc, row->values, row->nulls);
}

static void
put_state(ReturnSetInfo *result, const PapplyStatistics *statistics)
{
	bool		is_running = statistics->receiver_pid != 0;
	Row			row = {.columns = 0};

	add(&row, ObjectIdGetDatum(statistics->subid), false);
	add(&row, Int32GetDatum(statistics->receiver_pid), !is_running);
	add_progress(&row, &statistics->progress, is_running);
	put_row(result, &row);
}

static void
put_statistics(ReturnSetInfo *result, const PapplyStatistics *statistics)
{
	bool		has_error = statistics->last_error_time != 0;
	Row			row = {.columns = 0};

	add(&row, ObjectIdGetDatum(statistics->subid), false);
	for (int i = 0; i < PAPPLY_FIRST_TIME; i++)
		add(&row, Int64GetDatum(statistics->counts[i]), false);
	for (int i = PAPPLY_FIRST_TIME; i < PAPPLY_COUNTERS; i++)
		add(&row, Float8GetDatum(statistics->counts[i] / 1000.0), false);
	add(&row, TimestampTzGetDatum(statistics->last_error_time), !has_error);
	add_text(&row, has_error ? statistics->last_error : NULL);
	add(&row, TimestampTzGetDatum(statistics->stats_reset), false);
	put_row(result, &row);
}

/* A row for each subscription of the current database that has or had an apply worker. */
static void
put_all(FunctionCallInfo fcinfo, void (*put) (ReturnSetInfo *, const PapplyStatistics *))
{
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));

	InitMaterializedSRF(fcinfo, 0);
	for (int n = 0; papply_statistics_peek(n, statistics); n++)
		if (OidIsValid(statistics->subid) && statistics->dbid == MyDatabaseId)
			put((ReturnSetInfo *) fcinfo->resultinfo, statistics);
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

static void
reset_all(Oid subid)
{
	papply_statistics_reset(subid);
	papply_table_statistics_reset(subid);
	papply_hot_keys_reset(subid);
	papply_pool_reset_gain(subid);
}

/*
 * papply_reset_stats(subscription) begins the counters of a subscription anew;
 * NULL: of all of the current database.
 */
Datum
papply_reset_stats(PG_FUNCTION_ARGS)
{
	PapplyStatistics *statistics;

	if (!PG_ARGISNULL(0))
	{
		reset_all(papply_sql_get_subscription(fcinfo, 0));
		PG_RETURN_VOID();
	}
	statistics = palloc(sizeof(PapplyStatistics));
	for (int n = 0; papply_statistics_peek(n, statistics); n++)
		if (OidIsValid(statistics->subid) && statistics->dbid == MyDatabaseId)
			reset_all(statistics->subid);
	PG_RETURN_VOID();
}
