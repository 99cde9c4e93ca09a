/*-------------------------------------------------------------------------
 * views.c
 *	  Functions behind the views.
 *
 * Runs in a user's backend.  Everything is read without blocking other
 * processes, so the columns of a row may be of slightly different moments.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "storage/procarray.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "owner.h"
#include "pool.h"
#include "result_rows.h"
#include "sql_common.h"
#include "statistics.h"

PG_FUNCTION_INFO_V1(papply_get_writers);

static const PapplyResultColumn writer_columns[] = {
	{"subid", OIDOID},
	{"writer", INT4OID},
	{"pid", INT4OID},
	{"state", TEXTOID},
	{"remote_xid", XIDOID},
	{"remote_lsn", PG_LSNOID},
	{"xact_start", TIMESTAMPTZOID},
	{"changes_done", INT8OID},
	{"changes_received", INT8OID},
	{"blocked_by", INT4ARRAYOID},
	{"transactions", INT8OID},
	{"rows", INT8OID},
	{"prefetched", INT8OID},
	{"fallbacks", INT8OID},
	{"retries", INT8OID},
	{"commit_order_aborts", INT8OID}
};

#define WRITERS_COLUMNS lengthof(writer_columns)

/*
 * Return the state of a writer.  A writer at work may be waiting in the lock
 * manager.
 */
static const char *
name_of_state(const PapplyWriterSlot *slot)
{
	switch (slot->state)
	{
		case PAPPLY_WRITER_NONE:
		case PAPPLY_WRITER_FAILED:
		case PAPPLY_WRITER_EXITED:
			return NULL;
		case PAPPLY_WRITER_STARTING:
			return "starting";
		case PAPPLY_WRITER_IDLE:
			return "idle";
		case PAPPLY_WRITER_APPLYING:
			return papply_compat_proc_waits_for_lock(slot->proc) ?
				"waiting for lock" : "applying";
		case PAPPLY_WRITER_WAIT_DEPENDENCY:
			return "waiting for dependency";
		case PAPPLY_WRITER_WAIT_TURN:
			return "waiting for prior commit";
		case PAPPLY_WRITER_WAIT_DATA:
			return "waiting for data";
		case PAPPLY_WRITER_WAIT_REPLAY:
			return "waiting for leader";
	}
	return NULL;
}

/*
 * Return the processes that a writer waits for, in the lock manager or for the
 * commit order.
 */
static Datum
blockers_of(PapplyPool *pool, int writer)
{
	const PapplyWriterSlot *slot = &pool->writers[writer];
	Datum		pid;

	if (slot->state == PAPPLY_WRITER_APPLYING &&
		papply_compat_proc_waits_for_lock(slot->proc))
		return DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(slot->pid));
	pid = Int32GetDatum(papply_owner_awaited_pid(pool, writer));
	if (DatumGetInt32(pid) == 0)
		return PointerGetDatum(construct_empty_array(INT4OID));
	return PointerGetDatum(construct_array(&pid, 1, INT4OID, sizeof(int32), true,
										   TYPALIGN_INT));
}

/* Convert a time of clock.h to a time of day. */
static Datum
time_of(int64 moment)
{
	return TimestampTzGetDatum(GetCurrentTimestamp() - Max(papply_clock_now() - moment, 0));
}

static void
put_writer(PapplyResultRows *rows, PapplyPool *pool, int writer)
{
	const PapplyWriterSlot *slot = &pool->writers[writer];
	const char *state = name_of_state(slot);
	bool		has_work = slot->first_seqno != PAPPLY_NO_SEQNO;
	Datum		values[WRITERS_COLUMNS];
	bool		nulls[WRITERS_COLUMNS] = {false};
	int			i = 0;

	values[i++] = ObjectIdGetDatum(pool->subid);
	values[i++] = Int32GetDatum(writer + 1);
	values[i++] = Int32GetDatum(slot->pid);
	nulls[i] = (state == NULL);
	values[i++] = state ? CStringGetTextDatum(state) : (Datum) 0;
	nulls[i] = !has_work || !TransactionIdIsValid(slot->remote_xid);
	values[i++] = TransactionIdGetDatum(slot->remote_xid);
	nulls[i] = !has_work || XLogRecPtrIsInvalid(slot->remote_final_lsn);
	values[i++] = LSNGetDatum(slot->remote_final_lsn);
	nulls[i] = nulls[i + 1] = nulls[i + 2] = !has_work || slot->began_at == 0;
	values[i++] = time_of(slot->began_at);
	values[i++] = Int64GetDatum(slot->changes_done);
	values[i++] = Int64GetDatum(Max(slot->changes_received, slot->changes_done));
	values[i++] = blockers_of(pool, writer);
	values[i++] = Int64GetDatum(slot->counters.transactions);
	values[i++] = Int64GetDatum(slot->counters.rows);
	values[i++] = Int64GetDatum(slot->counters.prefetched);
	values[i++] = Int64GetDatum(slot->counters.fallbacks);
	values[i++] = Int64GetDatum(slot->counters.retries);
	values[i++] = Int64GetDatum(slot->counters.commit_order_aborts);
	Assert(i == WRITERS_COLUMNS);
	papply_result_rows_put(rows, values, nulls);
}

/* Return a row for the apply worker, if it applies a transaction itself. */
static void
put_leader(PapplyResultRows *rows, const PapplyStatistics *statistics)
{
	const PapplyLeader *leader = &statistics->progress.leader;
	PGPROC	   *proc = BackendPidGetProc(statistics->receiver_pid);
	bool		is_blocked = proc != NULL && papply_compat_proc_waits_for_lock(proc);
	Datum		values[WRITERS_COLUMNS];
	bool		nulls[WRITERS_COLUMNS] = {false};
	int			i = 0;

	if (proc == NULL || !leader->is_applying)
		return;
	values[i++] = ObjectIdGetDatum(statistics->subid);
	values[i++] = Int32GetDatum(0);
	values[i++] = Int32GetDatum(statistics->receiver_pid);
	values[i++] = CStringGetTextDatum(is_blocked ? "waiting for lock" : "applying");
	nulls[i] = !TransactionIdIsValid(leader->remote_xid);
	values[i++] = TransactionIdGetDatum(leader->remote_xid);
	nulls[i] = XLogRecPtrIsInvalid(leader->final_lsn);
	values[i++] = LSNGetDatum(leader->final_lsn);
	nulls[i] = leader->began_at == 0;
	values[i++] = time_of(leader->began_at);
	values[i++] = Int64GetDatum(leader->changes);
	nulls[i++] = true;			/* what is still to come is not known */
	values[i++] = is_blocked ?
		DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(statistics->receiver_pid)) :
		PointerGetDatum(construct_empty_array(INT4OID));
	while (i < WRITERS_COLUMNS)
		nulls[i++] = true;		/* as in subscription_stats */
	papply_result_rows_put(rows, values, nulls);
}

static void
put_writers(PapplyResultRows *rows, PapplyPool *pool)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (pool->writers[i].proc != NULL)
			put_writer(rows, pool, i);
}

/*
 * papply_get_writers() returns a row for each writer of the current database, and for
 * each apply worker that applies a transaction itself.
 */
Datum
papply_get_writers(PG_FUNCTION_ARGS)
{
	PapplyResultRows *rows = papply_result_rows_begin(fcinfo, writer_columns, WRITERS_COLUMNS);
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));
	PapplyPool *pool = palloc(sizeof(PapplyPool));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		Oid			subid = lfirst_oid(cell);

		if (papply_statistics_get(subid, statistics) && statistics->receiver_pid != 0)
			put_leader(rows, statistics);
		if (papply_pool_get(subid, pool))
			put_writers(rows, pool);
	}
	return (Datum) 0;
}
