/*-------------------------------------------------------------------------
 * call_replay.c
 *	  The procedure that applies a skipped and stored transaction.
 *
 * Runs in a user's backend.
 *
 * The session starts a background worker that does the work (writer/replay.c),
 * waits until it ends, and throws the error that the worker has left in the
 * segment that they share.  If the session is interrupted, it terminates the
 * worker and waits for its end, so nothing is applied after that.
 *
 * The worker cannot see what the session has changed, and the server could
 * not resolve a deadlock of the two.  So the procedure must not be called in a
 * transaction block, nor after a change in the same transaction.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "catalog/pg_subscription.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "replay.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_replay);

static void
check_call(FunctionCallInfo fcinfo)
{
	PreventCommandIfReadOnly("replay()");
	papply_sql_refuse_null(fcinfo, 0, "number of a skipped transaction");
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", "replay()")));
}

static PapplyReplay *
make_request(dsm_segment *segment, Oid subid, int64 id)
{
	PapplyReplay *replay = dsm_segment_address(segment);

	memset(replay, 0, sizeof(PapplyReplay));
	replay->dbid = MyDatabaseId;
	replay->subid = subid;
	replay->userid = GetSubscription(subid, false)->owner;
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
wait_for_worker(BackgroundWorkerHandle *handle)
{
	PG_ENSURE_ERROR_CLEANUP(stop_worker, PointerGetDatum(handle));
	{
		if (WaitForBackgroundWorkerShutdown(handle) == BGWH_POSTMASTER_DIED)
			proc_exit(1);
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

/*
 * papply_replay(id) applies a transaction that was skipped and stored, and
 * removes it.
 */
Datum
papply_replay(PG_FUNCTION_ARGS)
{
	dsm_segment *segment;
	PapplyReplay *replay;
	Oid			subid;

	check_call(fcinfo);
	subid = papply_sql_get_kept(PG_GETARG_INT64(0));
	segment = dsm_create(sizeof(PapplyReplay), 0);
	replay = make_request(segment, subid, PG_GETARG_INT64(0));
	wait_for_worker(start_worker(segment, subid));
	if (!replay->is_committed)
		throw_error(&replay->error);
	dsm_detach(segment);
	PG_RETURN_VOID();
}
