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
#include "utils/timestamp.h"

#include "clock.h"
#include "owner.h"
#include "pool.h"
#include "result_rows.h"
#include "sql_common.h"
#include "statistics.h"

PG_FUNCTION_INFO_V1(papply_get_writers);

/* NULL: there is no process. */
static const char *const states[] = {
	[PAPPLY_WRITER_NONE] = NULL,
	[PAPPLY_WRITER_STARTING] = "starting",
	[PAPPLY_WRITER_IDLE] = "idle",
	[PAPPLY_WRITER_APPLYING] = "applying",
	[PAPPLY_WRITER_WAIT_DEPENDENCY] = "waiting for dependency",
	[PAPPLY_WRITER_WAIT_TURN] = "waiting for prior commit",
	[PAPPLY_WRITER_WAIT_DATA] = "waiting for data",
	[PAPPLY_WRITER_WAIT_LEADER] = "waiting for leader",
	[PAPPLY_WRITER_FAILED] = NULL,
	[PAPPLY_WRITER_EXITED] = NULL
};

/* Return the processes that one waits for, in the lock manager or for the commit order. */
static Datum
blockers_of(const PapplyWriterSlot *writer_slot, bool is_blocked, int awaited_pid)
{
	Datum		pid = Int32GetDatum(awaited_pid);

	if (is_blocked)
		return DirectFunctionCall1(pg_blocking_pids, Int32GetDatum(writer_slot->pid));
	return PointerGetDatum(construct_array(&pid, awaited_pid != 0 ? 1 : 0, INT4OID, sizeof(int32),
										   true, TYPALIGN_INT));
}

/* Convert a time of clock.h to a time of day. */
static TimestampTz
time_of(int64 moment)
{
	return GetCurrentTimestamp() - Max(papply_clock_now() - moment, 0);
}

/*
 * Return a row for a writer, or for the apply worker with number 0.  The counters of
 * the apply worker are in subscription_stats, and what it still has to receive is not
 * known.
 */
static void
put_process(PapplyRow *row, Oid subid, int number, const PapplyWriterSlot *writer_slot, int awaited_pid)
{
	const PapplyWriterCounters *counters = &writer_slot->counters;
	bool		is_leader = number == 0;
	bool		is_blocked = writer_slot->state == PAPPLY_WRITER_APPLYING &&
	papply_compat_proc_waits_for_lock(writer_slot->proc);
	bool		has_work = writer_slot->first_seqno != PAPPLY_NO_SEQNO;
	bool		has_begun = has_work && writer_slot->began_at != 0;

	papply_row_oid(row, "subid", subid);
	papply_row_value(row, "writer", INT4OID, Int32GetDatum(number), false);
	papply_row_value(row, "pid", INT4OID, Int32GetDatum(writer_slot->pid), false);
	papply_row_text(row, "state", is_blocked ? "waiting for lock" : states[writer_slot->state]);
	papply_row_value(row, "remote_xid", XIDOID, TransactionIdGetDatum(writer_slot->remote_xid),
					 !has_work || !TransactionIdIsValid(writer_slot->remote_xid));
	papply_row_lsn(row, "remote_lsn", has_work ? writer_slot->remote_final_lsn : InvalidXLogRecPtr);
	papply_row_time(row, "xact_start", has_begun ? time_of(writer_slot->began_at) : 0);
	papply_row_int8(row, "changes_done", writer_slot->changes_done, !has_begun && !is_leader);
	papply_row_int8(row, "changes_received", Max(writer_slot->changes_received, writer_slot->changes_done), !has_begun || is_leader);
	papply_row_value(row, "blocked_by", INT4ARRAYOID, blockers_of(writer_slot, is_blocked, awaited_pid), false);
	papply_row_int8(row, "transactions", counters->transactions, is_leader);
	papply_row_int8(row, "rows", counters->rows, is_leader);
	papply_row_int8(row, "prefetched", counters->prefetched, is_leader);
	papply_row_int8(row, "fallbacks", counters->fallbacks, is_leader);
	papply_row_int8(row, "retries", counters->retries, is_leader);
	papply_row_int8(row, "commit_order_aborts", counters->commit_order_aborts, is_leader);
	papply_row_put(row);
}

/* Return a row for the apply worker, if it applies a transaction itself. */
static void
put_leader(PapplyRow *row, const PapplyStatistics *statistics)
{
	const PapplyLeader *leader = &statistics->progress.leader;
	PapplyWriterSlot writer_slot = {.proc = BackendPidGetProc(statistics->receiver_pid)};

	if (writer_slot.proc == NULL || !leader->is_applying)
		return;
	writer_slot.pid = statistics->receiver_pid;
	writer_slot.state = PAPPLY_WRITER_APPLYING;
	writer_slot.first_seqno = 1;	/* any */
	writer_slot.remote_xid = leader->remote_xid;
	writer_slot.remote_final_lsn = leader->final_lsn;
	writer_slot.began_at = leader->began_at;
	writer_slot.changes_done = leader->changes;
	put_process(row, statistics->subid, 0, &writer_slot, 0);
}

static void
put_writers(PapplyRow *row, PapplyPool *pool)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (pool->writers[i].proc != NULL)
			put_process(row, pool->subid, i + 1, &pool->writers[i], papply_owner_awaited_pid(pool, i));
}

/*
 * papply_get_writers() returns a row for each writer of the current database, and for
 * each apply worker that applies a transaction itself.
 */
Datum
papply_get_writers(PG_FUNCTION_ARGS)
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));
	PapplyPool *pool = palloc(sizeof(PapplyPool));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		Oid			subid = lfirst_oid(cell);

		if (papply_statistics_get(subid, statistics) && statistics->receiver_pid != 0)
			put_leader(row, statistics);
		if (papply_pool_get(subid, pool))
			put_writers(row, pool);
	}
	return (Datum) 0;
}
