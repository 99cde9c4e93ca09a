/*-------------------------------------------------------------------------
 * skip_transactions.c
 *	  The procedure that skips transactions as long as they fail.
 *
 * Runs in a user's backend.
 *
 * Each transaction is skipped as skip_transaction() does it, and that is
 * committed before the apply worker tries again.  So the session may end at any
 * time: what it has skipped is stored by the apply worker.
 *
 * When does no transaction fail any longer?  Between two attempts, and while the connection
 * fails, no failure may be recorded, and the next transaction, which fails, may
 * not have been sent.  So the publisher is asked for its position first, and the
 * end has come when everything up to there, and what was skipped, is behind the
 * subscription.  This position is fixed, so the procedure ends with a busy
 * publisher, too.
 *
 * A failure that is recorded for the transaction that has been skipped last may
 * be that of an attempt which had begun before.  There can be one of these.  If
 * there is another one, the transaction cannot be skipped.
 *
 * If errors disable the subscription, the apply worker does that after it has
 * recorded the failure.  The procedure waits for it, skips the transaction, and
 * enables the subscription in the same local transaction.  So a subscription that
 * is disabled without a new failure was disabled by a user, and remains so.
 *
 * The session waits outside of the lock manager only while it holds no lock.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/htup_details.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "tcop/pquery.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/syscache.h"
#include "utils/tuplestore.h"

#include "../sql/sql_common.h"
#include "failed.h"
#include "statistics.h"
#include "subscription_options.h"

PG_FUNCTION_INFO_V1(papply_skip_transactions);

/* A call. */
typedef struct Run
{
	FunctionCallInfo fcinfo;
	int			left;			/* number of transactions that may be skipped */
	bool		must_store;
	XLogRecPtr	wanted_lsn;		/* flushed by the publisher at the beginning */
	long		nap_ms;

	/* the last transaction that was skipped */
	XLogRecPtr	final_lsn;		/* InvalidXLogRecPtr: none */
	uint32		attempts;		/* before that */
	bool		was_repeated;	/* it has failed once more */

	/* what was seen last */
	PapplyStatistics statistics;
	bool		is_enabled;
	bool		is_disabled_by_errors;	/* an option of the subscription */
} Run;

/*** the publisher ***/

static void
get_position(WalReceiverConn *conn, void *arg)
{
	XLogRecPtr *position = arg;
	WalRcvExecResult *result = papply_publisher_sql_execute(conn,
															"SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()"
															" ELSE pg_catalog.pg_current_wal_flush_lsn() END",
															PG_LSNOID, "its position");
	TupleTableSlot *slot = MakeSingleTupleTableSlot(result->tupledesc, &TTSOpsMinimalTuple);
	bool		is_null;

	if (tuplestore_gettupleslot(result->tuplestore, true, false, slot))
		*position = DatumGetLSN(slot_getattr(slot, 1, &is_null));
	ExecDropSingleTupleTableSlot(slot);
	walrcv_clear_result(result);
}

/*** what has happened ***/

static void
look(Run *run)
{
	Oid			subid = papply_sql_get_subscription(run->fcinfo, 0);
	HeapTuple	tuple = SearchSysCache1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid));
	Form_pg_subscription subscription;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for subscription %u", subid);
	subscription = (Form_pg_subscription) GETSTRUCT(tuple);
	run->is_enabled = subscription->subenabled;
	run->is_disabled_by_errors = subscription->subdisableonerr;
	ReleaseSysCache(tuple);
	if (!papply_statistics_get(subid, &run->statistics))
		memset(&run->statistics, 0, sizeof(run->statistics));
	run->statistics.subid = subid;
}

/* Has a transaction failed since the last one was skipped? */
static bool
has_failed(const Run *run)
{
	const PapplyFailedTransaction *failed = &run->statistics.failed;

	return papply_statistics_has_failed(&run->statistics) &&
		(failed->final_lsn != run->final_lsn || failed->attempts > run->attempts);
}

static bool
has_ended(const Run *run)
{
	XLogRecPtr	committed_lsn = run->statistics.progress.committed_lsn;

	if (has_failed(run))
		return run->left == 0 && run->statistics.failed.final_lsn != run->final_lsn;
	return committed_lsn > run->final_lsn &&
		(run->left == 0 || committed_lsn >= run->wanted_lsn);
}

/* Throw an error if the subscription cannot advance. */
static void
check_may_advance(const Run *run)
{
	Oid			subid = run->statistics.subid;
	PapplySubscriptionOptions options;

	papply_subscription_options_get(subid, &options);
	if (options.is_paused)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("subscription \"%s\" is paused", get_subscription_name(subid, false)),
				 errhint("Use %s to resume it.", PAPPLY_NAME ".resume()")));
	if (!run->is_enabled && !(run->is_disabled_by_errors && has_failed(run)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("subscription \"%s\" is disabled", get_subscription_name(subid, false)),
				 errhint("Use %s to enable it.", "ALTER SUBSCRIPTION ... ENABLE")));
}

/*** a skip ***/

static void
refuse_repeated(const Run *run)
{
	const PapplyFailedTransaction *failed = &run->statistics.failed;

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("could not skip transaction %u of subscription \"%s\": %s",
					failed->remote_xid, get_subscription_name(run->statistics.subid, false),
					failed->message)));
}

/* Note that the transaction is the last one that was skipped. */
static void
note_skipped(Run *run, int64 id)
{
	const PapplyFailedTransaction *failed = &run->statistics.failed;
	const char *subname = get_subscription_name(run->statistics.subid, false);

	run->attempts = failed->attempts;
	run->was_repeated = failed->final_lsn == run->final_lsn;
	if (run->was_repeated)
		return;
	run->final_lsn = failed->final_lsn;
	run->left--;
	ereport(NOTICE,
			(run->must_store ?
			 errmsg("transaction %u of subscription \"%s\", finished at " PAPPLY_LSN_FORMAT ", is skipped and stored with number %lld",
					failed->remote_xid, subname, LSN_FORMAT_ARGS(failed->final_lsn), (long long) id) :
			 errmsg("transaction %u of subscription \"%s\", finished at " PAPPLY_LSN_FORMAT ", is skipped",
					failed->remote_xid, subname, LSN_FORMAT_ARGS(failed->final_lsn)),
			 errdetail_internal("%s", failed->message)));
}

static void
enable(Oid subid)
{
	char	   *command = psprintf("ALTER SUBSCRIPTION %s ENABLE",
								   quote_identifier(get_subscription_name(subid, false)));

	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\"", command);
}

/*
 * Skip the transaction that fails, unless it has been applied meanwhile, and
 * commit.  The launcher is woken after that, so an attempt that it causes skips the
 * transaction.
 */
static void
skip(Run *run)
{
	int64		id;

	if (run->was_repeated && run->statistics.failed.final_lsn == run->final_lsn)
		refuse_repeated(run);
	EnsurePortalSnapshotExists();
	(void) papply_sql_change_subscription(run->fcinfo, 0, "skip_transactions()");
	look(run);
	if (!has_failed(run))
		return;
	id = papply_skip_failed(run->fcinfo, &run->statistics, run->must_store);
	if (!run->is_enabled)
		enable(run->statistics.subid);
	SPI_commit();
	note_skipped(run, id);
	papply_compat_start_leader_at_commit(run->statistics.subid);
	SPI_commit();
	run->nap_ms = 0;
}

/*** the procedure ***/

static void
begin(Run *run)
{
	Oid			subid;

	papply_sql_begin_procedure(run->fcinfo, "skip_transactions()");
	subid = papply_sql_get_subscription(run->fcinfo, 0);
	papply_sql_refuse_null(run->fcinfo, 1, "maximum number of transactions");
	if (run->left < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("maximum number of transactions must be greater than zero")));
	papply_sql_check_owner(subid);
	(void) papply_failed_get(subid);
	papply_publisher_sql_use(subid, get_position, &run->wanted_lsn);
}

/*
 * papply_skip_transactions(subscription, max, keep) skips the transaction that fails,
 * the next one that fails, and so on, until max have been skipped, or everything that
 * the publisher had at the beginning is applied or skipped.
 */
Datum
papply_skip_transactions(PG_FUNCTION_ARGS)
{
	Run			run = {
		.fcinfo = fcinfo,
		.left = PG_ARGISNULL(1) ? 0 : PG_GETARG_INT32(1),
		.must_store = PG_ARGISNULL(2) || PG_GETARG_BOOL(2)
	};

	begin(&run);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	for (look(&run); !has_ended(&run); look(&run))
	{
		check_may_advance(&run);
		if (has_failed(&run) && !(run.is_enabled && run.is_disabled_by_errors))
			skip(&run);
		else
			papply_wait_nap(&run.nap_ms, PAPPLY_MAX_NAP_MS);
	}
	SPI_finish();
	PG_RETURN_VOID();
}
