/*-------------------------------------------------------------------------
 * call_replay.c
 *	  The procedures that apply skipped and stored transactions.
 *
 * Runs in a user's backend.
 *
 * For each transaction the session starts a background worker that does the work (replay.c),
 * waits until it ends, and throws the error that the worker has left in the
 * segment that they share.  If the session is interrupted, it terminates the
 * worker and waits for its end, so nothing is applied after that.
 *
 * The worker cannot see what the session has changed.  So the procedures must
 * not be called in a transaction block, nor after a change in the same
 * transaction.
 *
 * The session may still hold locks that the worker waits for: PL/pgSQL may have
 * read tables before, and locks of a session may be held.  The server's
 * deadlock detector does not find this, because the session does not wait in
 * the lock manager.  Which locks the worker needs is not known before, and most
 * locks do no harm.  So the session checks, as often as the deadlock detector
 * would, whether the worker waits for it.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_subscription.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/guc.h"

#include "../sql/sql_common.h"
#include "blockers.h"
#include "failed.h"
#include "stored.h"

PG_FUNCTION_INFO_V1(papply_replay);
PG_FUNCTION_INFO_V1(papply_replay_transactions);

static PapplyReplay *
make_request(dsm_segment *segment, Oid subid, int64 id)
{
	PapplyReplay *replay = dsm_segment_address(segment);
	Subscription *subscription = GetSubscription(subid, true);

	if (subscription == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the subscription of skipped transaction %lld does not exist",
						(long long) id),
				 errhint("Use %s to make its changes by hand.", PAPPLY_NAME ".skipped_changes()")));
	memset(replay, 0, sizeof(PapplyReplay));
	replay->dbid = MyDatabaseId;
	replay->subid = subid;
	replay->userid = subscription->owner;
	replay->id = id;
	strlcpy(replay->synchronous_commit, GetConfigOption("synchronous_commit", false, false),
			sizeof(replay->synchronous_commit));
	return replay;
}

static BackgroundWorkerHandle *
start_worker(dsm_segment *segment, Oid subid)
{
	BackgroundWorkerHandle *handle;
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(segment));
	strlcpy(worker.bgw_library_name, PAPPLY_NAME, sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "papply_replay_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), PAPPLY_REPLAY_TYPE " %u", subid);
	strlcpy(worker.bgw_type, PAPPLY_REPLAY_TYPE, sizeof(worker.bgw_type));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not start a process to replay the transaction"),
				 errhint("No background worker slot is free; see \"%s\".", "max_worker_processes")));
	return handle;
}

static void
stop_worker(int code, Datum arg)
{
	BackgroundWorkerHandle *handle = (BackgroundWorkerHandle *) DatumGetPointer(arg);

	HOLD_INTERRUPTS();
	TerminateBackgroundWorker(handle);
	(void) WaitForBackgroundWorkerShutdown(handle);
	RESUME_INTERRUPTS();
}

static void
check_deadlock(pid_t pid)
{
	if (papply_blockers_include_me(pid))
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("the replay waits for a lock that this session holds"),
				 errhint("Call the procedure before the transaction reads or locks tables, or in a transaction of its own.")));
}

/* The postmaster sets the latch when the worker has started, and has ended. */
static void
wait_until_ended(BackgroundWorkerHandle *handle)
{
	pid_t		pid;
	BgwHandleStatus status;

	while ((status = GetBackgroundWorkerPid(handle, &pid)) != BGWH_STOPPED)
	{
		int			events = WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
									   DeadlockTimeout, WAIT_EVENT_BGWORKER_SHUTDOWN);

		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if ((events & WL_TIMEOUT) != 0 && status == BGWH_STARTED)
			check_deadlock(pid);
	}
}

static void
wait_for_worker(BackgroundWorkerHandle *handle)
{
	PG_ENSURE_ERROR_CLEANUP(stop_worker, PointerGetDatum(handle));
	{
		wait_until_ended(handle);
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop_worker, PointerGetDatum(handle));
}

static char *
text_or_null(char *text)
{
	return text[0] == '\0' ? NULL : text;
}

static void
throw_error(PapplyReplayError *error)
{
	ErrorData	data = {0};

	if (error->sqlerrcode == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("the process that replays the transaction has ended unexpectedly"),
				 errhint("More details may be available in the server log.")));
	data.elevel = ERROR;
	data.sqlerrcode = error->sqlerrcode;
	data.message = error->message;
	data.detail = text_or_null(error->detail);
	data.hint = text_or_null(error->hint);
	data.context = text_or_null(error->context);
	data.schema_name = text_or_null(error->schema_name);
	data.table_name = text_or_null(error->table_name);
	data.column_name = text_or_null(error->column_name);
	data.datatype_name = text_or_null(error->datatype_name);
	data.constraint_name = text_or_null(error->constraint_name);
	data.assoc_context = CurrentMemoryContext;
	ThrowErrorData(&data);
}

static void
replay_one(Oid subid, int64 id)
{
	dsm_segment *segment = dsm_create(sizeof(PapplyReplay), 0);
	PapplyReplay *replay = make_request(segment, subid, id);

	wait_for_worker(start_worker(segment, subid));
	if (!replay->is_committed)
		throw_error(&replay->error);
	if (replay->left_out[0] != '\0')
		ereport(NOTICE,
				(errmsg("skipped transaction %lld is replayed without its changes of %s",
						(long long) id, replay->left_out),
				 errdetail("The copy of a table that was made later contains them.")));
	dsm_detach(segment);
}

/*
 * papply_replay(id) applies a transaction that was skipped and stored, and
 * removes it.
 */
Datum
papply_replay(PG_FUNCTION_ARGS)
{
	papply_sql_begin_procedure(fcinfo, "replay()");
	papply_sql_refuse_null(fcinfo, 0, "number of a skipped transaction");
	replay_one(papply_skip_subscription(PG_GETARG_INT64(0)), PG_GETARG_INT64(0));
	PG_RETURN_VOID();
}

/*
 * papply_replay_transactions(subscription) does that with all transactions of the
 * subscription.  They have been numbered in the order in which they arrived.  A
 * prepared transaction arrives before its commit, but it has held its locks since,
 * so those in between do not depend on it.
 */
Datum
papply_replay_transactions(PG_FUNCTION_ARGS)
{
	Oid			subid;
	int64		id = 0;

	papply_sql_begin_procedure(fcinfo, "replay_transactions()");
	subid = papply_sql_get_subscription(fcinfo, 0);
	papply_sql_check_owner(subid);
	while ((id = papply_stored_next_id_after(subid, id)) != 0)
		replay_one(subid, id);
	PG_RETURN_VOID();
}
