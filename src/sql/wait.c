/*-------------------------------------------------------------------------
 * wait.c
 *	  SQL functions that wait for a subscription.
 *
 * Runs in a user's backend.
 *
 * The functions poll, at first after a millisecond, then less often.  Waking
 * them would require the apply worker to look for them at each commit.  The
 * statement keeps its snapshot during the wait; the next statement sees the
 * commits.
 *
 * They lock nothing.  On a standby, the snapshot may conflict with what is
 * replayed, which then waits for the statement, or cancels it; see
 * doc/functions.md.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/htup_details.h"
#include "access/xlog.h"
#include "catalog/pg_subscription.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "storage/latch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "session_pauses.h"
#include "sql_common.h"
#include "statistics.h"
#include "subscription_options.h"

PG_FUNCTION_INFO_V1(papply_wait_for_lsn);
PG_FUNCTION_INFO_V1(papply_drain);
PG_FUNCTION_INFO_V1(papply_pause_at);

#define MIN_NAP_MS 1

/* After this time a NOTICE says why the subscription does not move, if it is known. */
#define PATIENCE_MS 1000

/* More than a thousand years.  A longer or infinite interval means no timeout. */
#define MAX_TIMEOUT_MS 1e14

/*
 * Return the first argument, a subscription of this database.  Throws if the
 * user may not watch it.
 */
static Oid
get_watched_subscription(FunctionCallInfo fcinfo)
{
	Oid			subid = papply_sql_get_subscription(fcinfo, 0);

	papply_sql_check_may_see(subid);
	return subid;
}

/* State of a wait. */
typedef struct Wait
{
	Oid			subid;
	int64		began_at;		/* of clock.h */
	int64		deadline;		/* 0: none */
	bool		expects_pause;
	int64		absent_since;	/* of clock.h; 0: there is an apply worker, or
								 * another obstacle */
	const char *reported;		/* what the last NOTICE has said; NULL: none */
	long		nap_ms;
} Wait;

/* Begin a wait whose timeout is this argument, or unlimited if it is null. */
static Wait
begin_wait(Oid subid, FunctionCallInfo fcinfo, int argument)
{
	Wait		wait = {.subid = subid,.began_at = papply_clock_now()};
	const Interval *timeout;
	double		timeout_ms;

	if (PG_ARGISNULL(argument))
		return wait;
	timeout = PG_GETARG_INTERVAL_P(argument);
	timeout_ms = timeout->time / 1000.0 + 86400e3 * timeout->day + 30 * 86400e3 * timeout->month;
	if (timeout_ms < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("timeout must not be negative")));
	if (timeout_ms <= MAX_TIMEOUT_MS)
		wait.deadline = papply_clock_now() + (int64) timeout_ms * 1000;
	return wait;
}

/*
 * Return the progress of the subscription, or that of its last apply worker.
 * It is all zeros if there has been no apply worker since the server started.
 */
static PapplyStatistics *
look_at_progress(Oid subid)
{
	static PapplyStatistics statistics;

	if (!papply_statistics_get(subid, &statistics))
		memset(&statistics, 0, sizeof(statistics));
	return &statistics;
}

static bool
is_enabled(Oid subid)
{
	HeapTuple	tuple = SearchSysCache1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_subscription) GETSTRUCT(tuple))->subenabled;
	ReleaseSysCache(tuple);
	return result;
}

/* Return why the subscription does not advance; NULL: it may advance. */
static const char *
find_obstacle(const Wait *wait)
{
	PapplySubscriptionOptions options;
	PapplySessionPause pause;
	PapplyStatistics *statistics;

	if (!is_enabled(wait->subid))
		return "It is disabled.";
	papply_subscription_options_get(wait->subid, &options);
	if (options.is_paused && !wait->expects_pause)
		return "It is paused: see " PAPPLY_NAME ".resume().";
	if (papply_session_pauses_get(wait->subid, &pause) && pause.state == PAPPLY_PAUSE_REACHED &&
		!wait->expects_pause)
		return "A session pauses it at a position: see " PAPPLY_NAME ".resume().";
	if (RecoveryInProgress())
		return "A standby knows of no position after the last transaction that it has replayed.";
	statistics = look_at_progress(wait->subid);
	if (statistics->progress.failure.kind == PAPPLY_FAILURE_CONNECTION)
		return "It is disconnected: see " PAPPLY_NAME ".subscriptions.";
	if (papply_statistics_has_failed(statistics))
		return "A transaction fails: see " PAPPLY_NAME ".failed_transactions.";
	if (statistics->progress.failure.kind == PAPPLY_FAILURE_OTHER)
		return "It is failing, but not in a transaction: see " PAPPLY_NAME ".subscriptions.";
	return NULL;
}

/*
 * Return why there is no apply worker; NULL: there is one, or one may be about
 * to start.  The launcher starts an apply worker again after
 * "wal_retrieve_retry_interval".
 */
static const char *
find_absence(Wait *wait)
{
	if (look_at_progress(wait->subid)->receiver_pid != 0)
	{
		wait->absent_since = 0;
		return NULL;
	}
	if (!papply_clock_has_lasted(&wait->absent_since, papply_clock_now(),
								 wal_retrieve_retry_interval + PATIENCE_MS))
		return NULL;
	return papply_compat_apply_worker_runs(wait->subid) ?
		"Its apply worker is connecting to the publisher, or does not use " PAPPLY_NAME "." :
		"No apply worker is running: see " PAPPLY_NAME ".subscriptions.";
}

/*
 * Report why the wait may last forever, once for each reason.  The wait may be
 * about to end, so this is not reported immediately.
 */
static void
report_obstacle(Wait *wait)
{
	const char *obstacle;

	if (!papply_clock_has_passed(wait->began_at, papply_clock_now(), PATIENCE_MS))
		return;
	obstacle = find_obstacle(wait);
	if (obstacle == NULL)
		obstacle = find_absence(wait);
	else
		wait->absent_since = 0;
	if (obstacle == NULL || obstacle == wait->reported)
		return;
	ereport(NOTICE,
			(errmsg("still waiting for subscription \"%s\"",
					get_subscription_name(wait->subid, false)),
			 errdetail_internal("%s", obstacle)));
	wait->reported = obstacle;
}

void
papply_wait_nap(long *nap_ms, long max_ms)
{
	*nap_ms = Min(Max(2 * *nap_ms, MIN_NAP_MS), PAPPLY_MAX_NAP_MS);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 Min(*nap_ms, max_ms), papply_compat_wait_event(PAPPLY_WAIT_POSITION));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	AcceptInvalidationMessages();
}

/*
 * Sleep for a moment.  Returns false if the timeout has passed.  Throws if the
 * subscription has been dropped.
 */
static bool
continue_waiting(Wait *wait)
{
	int64		left_ms = PAPPLY_MAX_NAP_MS;

	if (!SearchSysCacheExists1(SUBSCRIPTIONOID, ObjectIdGetDatum(wait->subid)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("subscription was dropped during the wait")));
	report_obstacle(wait);
	if (wait->deadline != 0)
		left_ms = (wait->deadline - papply_clock_now() + 999) / 1000;
	if (left_ms <= 0)
		return false;
	papply_wait_nap(&wait->nap_ms, Min(left_ms, PAPPLY_MAX_NAP_MS));
	return true;
}

/*
 * Return the progress of the replication origin, which has the name that the
 * apply worker uses.
 */
static XLogRecPtr
origin_progress(Oid subid)
{
	char	   *name = psprintf("pg_%u", subid);
	PapplyOriginId origin = replorigin_by_name(name, true);

	pfree(name);
	return origin == PAPPLY_NO_ORIGIN ? InvalidXLogRecPtr : replorigin_get_progress(origin, false);
}

/*
 * Without an apply worker, the origin may be further than the shared progress:
 * after a restart, and on a standby, which replays it with the commits.  With
 * an apply worker the origin does not count, since it advances before a commit
 * is visible.  So the origin must be read before the check for an apply
 * worker.
 */
static XLogRecPtr
committed_lsn(Oid subid)
{
	XLogRecPtr	origin_lsn = origin_progress(subid);
	PapplyStatistics *statistics = look_at_progress(subid);

	return statistics->receiver_pid != 0 ? statistics->progress.committed_lsn :
		Max(statistics->progress.committed_lsn, origin_lsn);
}

/*
 * papply_wait_for_lsn(subscription, lsn, timeout or NULL) waits until
 * everything up to that position of the publisher's WAL has committed. Returns
 * false if the timeout passed before that.
 */
Datum
papply_wait_for_lsn(PG_FUNCTION_ARGS)
{
	Oid			subid = get_watched_subscription(fcinfo);
	Wait		wait = begin_wait(subid, fcinfo, 2);

	papply_sql_refuse_null(fcinfo, 1, "position");
	while (committed_lsn(subid) < PG_GETARG_LSN(1))
		if (!continue_waiting(&wait))
			PG_RETURN_BOOL(false);
	PG_RETURN_BOOL(true);
}

/* Has a pause been committed that the apply worker has not noticed yet? */
static bool
is_about_to_pause(Oid subid)
{
	PapplySubscriptionOptions options;
	PapplyStatistics *statistics = look_at_progress(subid);

	papply_subscription_options_get(subid, &options);
	return options.is_paused && !papply_subscription_options_wakes_worker(subid) &&
		statistics->receiver_pid != 0 && statistics->progress.state != PAPPLY_APPLY_PAUSED;
}

/*
 * papply_drain(subscription, timeout or NULL) waits until everything that had
 * been received at the beginning has committed or, if apply is paused,
 * everything that has been received.  Returns false if the timeout passed
 * before that.  In a pause, messages that an earlier apply worker received do
 * not count.
 */
Datum
papply_drain(PG_FUNCTION_ARGS)
{
	Oid			subid = get_watched_subscription(fcinfo);
	Wait		wait = begin_wait(subid, fcinfo, 1);
	XLogRecPtr	received_lsn;
	PapplyProgress *progress;

	wait.expects_pause = true;
	while (is_about_to_pause(subid))
		if (!continue_waiting(&wait))
			PG_RETURN_BOOL(false);
	received_lsn = look_at_progress(subid)->progress.received_lsn;
	for (;;)
	{
		progress = &look_at_progress(subid)->progress;
		if (progress->committed_lsn >= received_lsn ||
			(progress->state == PAPPLY_APPLY_PAUSED &&
			 progress->committed_lsn >= progress->received_lsn))
			PG_RETURN_BOOL(true);
		if (!continue_waiting(&wait))
			PG_RETURN_BOOL(false);
	}
}

/*** a pause at a position ***/

static void
begin_pause(Oid subid, XLogRecPtr remote_lsn)
{
	int			holder = papply_session_pauses_set(subid, remote_lsn);

	if (holder > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("subscription \"%s\" is paused by the session with process ID %d",
						get_subscription_name(subid, false), holder)));
	if (holder < 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many subscriptions are paused at a position"),
				 errhint("You might need to increase \"%s\".", "max_logical_replication_workers")));
}

/* Return false if the timeout has passed. */
static bool
wait_for_pause(Wait *wait)
{
	PapplySessionPause pause;

	do
	{
		if (!papply_session_pauses_get(wait->subid, &pause) || pause.pid != MyProcPid)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("pause of subscription \"%s\" was ended by another session",
							get_subscription_name(wait->subid, false))));
		if (pause.state == PAPPLY_PAUSE_PASSED)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("subscription \"%s\" has passed position " PAPPLY_LSN_FORMAT,
							get_subscription_name(wait->subid, false),
							LSN_FORMAT_ARGS(pause.remote_lsn))));
		if (pause.state == PAPPLY_PAUSE_REACHED)
			return true;
	} while (continue_waiting(wait));
	return false;
}

/*
 * papply_pause_at(subscription, position or NULL, timeout or NULL) applies what ended
 * on the publisher before that position, and nothing else, until the session ends, and
 * waits for this state.  NULL is the position where the subscription is.  Returns false
 * if the timeout passed before; the pause is not given up then, but after any error.
 */
Datum
papply_pause_at(PG_FUNCTION_ARGS)
{
	Oid			subid = papply_sql_get_subscription(fcinfo, 0);
	Wait		wait = begin_wait(subid, fcinfo, 2);
	volatile bool is_reached = false;

	PreventCommandDuringRecovery("pause()");
	papply_sql_check_owner(subid);
	begin_pause(subid, PG_ARGISNULL(1) ? InvalidXLogRecPtr : PG_GETARG_LSN(1));
	PG_TRY();
	{
		is_reached = wait_for_pause(&wait);
	}
	PG_CATCH();
	{
		papply_session_pauses_remove_own(subid);
		PG_RE_THROW();
	}
	PG_END_TRY();
	PG_RETURN_BOOL(is_reached);
}
