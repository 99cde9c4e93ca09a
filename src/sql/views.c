/*-------------------------------------------------------------------------
 * views.c
 *	  Functions behind the views.
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

#include "pool.h"

PG_FUNCTION_INFO_V1(papply_writers);

#define WRITERS_COLUMNS 12

/* A writer that works may sleep in the lock manager. */
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
			return "waiting for turn";
		case PAPPLY_WRITER_WAIT_DATA:
			return "waiting for data";
		case PAPPLY_WRITER_WAIT_REPLAY:
			return "waiting for native replay";
	}
	return NULL;
}

static void
put_writer(ReturnSetInfo *result, Oid subid, int writer, const PapplyWriterSlot *slot)
{
	const char *state = name_of_state(slot);
	bool		has_work = slot->first_seqno != PAPPLY_NO_SEQNO;
	Datum		values[WRITERS_COLUMNS];
	bool		nulls[WRITERS_COLUMNS] = {false};
	int			i = 0;

	values[i++] = ObjectIdGetDatum(subid);
	values[i++] = Int32GetDatum(writer);
	values[i++] = Int32GetDatum(slot->pid);
	nulls[i] = (state == NULL);
	values[i++] = state ? CStringGetTextDatum(state) : (Datum) 0;
	nulls[i] = !has_work || !TransactionIdIsValid(slot->remote_xid);
	values[i++] = TransactionIdGetDatum(slot->remote_xid);
	nulls[i] = !has_work || XLogRecPtrIsInvalid(slot->remote_final_lsn);
	values[i++] = LSNGetDatum(slot->remote_final_lsn);
	values[i++] = Int64GetDatum(slot->counters.transactions);
	values[i++] = Int64GetDatum(slot->counters.rows);
	values[i++] = Int64GetDatum(slot->counters.prefetched);
	values[i++] = Int64GetDatum(slot->counters.native_replays);
	values[i++] = Int64GetDatum(slot->counters.retries);
	values[i++] = Int64GetDatum(slot->counters.older_wins);
	Assert(i == WRITERS_COLUMNS);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * papply_writers() returns a row for each writer of the current database.
 */
Datum
papply_writers(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	PapplyPool *pool = palloc(sizeof(PapplyPool));

	InitMaterializedSRF(fcinfo, 0);
	for (int n = 0; papply_pool_peek(n, pool); n++)
	{
		if (!pool->in_use || pool->dbid != MyDatabaseId)
			continue;
		for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
			if (pool->writers[i].proc != NULL)
				put_writer(result, pool->subid, i + 1, &pool->writers[i]);
	}
	return (Datum) 0;
}
