/*-------------------------------------------------------------------------
 * publisher.c
 *	  What the publisher can do.
 *
 * Runs in the receiver, before the stream is started: until then a connection for
 * logical replication takes SQL as well.
 *
 * A publisher that preloads the library has its settings.  The view shows no setting
 * that only the configuration file has.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/tuplestore.h"

#include "publisher.h"
#include "seam.h"

/*
 * Two columns: does it ask for flushes?  Are there sessions that wait for them, as far as
 * its configuration says?  They may wait in other modes than the default one, and for
 * other standbys.
 */
static const char *const query =
"SELECT EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = '" PAPPLY_NAME ".gather_messages'),"
" pg_catalog.current_setting('synchronous_standby_names') <> ''"
" AND pg_catalog.current_setting('synchronous_commit') = 'on'";

static bool
is_true(TupleTableSlot *slot, int column)
{
	bool		is_null;
	Datum		value = slot_getattr(slot, column, &is_null);

	return !is_null && DatumGetBool(value);
}

static PapplyFlushes
read_answer(WalRcvExecResult *result)
{
	TupleTableSlot *slot;
	PapplyFlushes answer = PAPPLY_FLUSHES_AT_ONCE;

	if (result->status != WALRCV_OK_TUPLES)
		return answer;
	slot = MakeSingleTupleTableSlot(result->tupledesc, &TTSOpsMinimalTuple);
	if (tuplestore_gettupleslot(result->tuplestore, true, false, slot))
	{
		if (is_true(slot, 1))
			answer = PAPPLY_FLUSHES_ASKED;
		else if (!is_true(slot, 2))
			answer = PAPPLY_FLUSHES_GUESSED;
	}
	ExecDropSingleTupleTableSlot(slot);
	return answer;
}

PapplyFlushes
papply_publisher_flushes(WalReceiverConn *conn)
{
	MemoryContext old_context = CurrentMemoryContext;
	Oid			types[] = {BOOLOID, BOOLOID};
	WalRcvExecResult *result;
	PapplyFlushes answer;

	/* the result's types are looked up */
	StartTransactionCommand();
	result = (papply_seam_server->walrcv_exec) (conn, query, lengthof(types), types);
	answer = read_answer(result);
	walrcv_clear_result(result);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
	return answer;
}
