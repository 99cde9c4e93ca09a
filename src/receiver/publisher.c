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

static const char *const query =
"SELECT EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = '" PAPPLY_NAME ".gather_messages')";

static bool
read_answer(WalRcvExecResult *result)
{
	TupleTableSlot *slot;
	bool		is_null;
	bool		answer = false;

	if (result->status != WALRCV_OK_TUPLES)
		return false;
	slot = MakeSingleTupleTableSlot(result->tupledesc, &TTSOpsMinimalTuple);
	if (tuplestore_gettupleslot(result->tuplestore, true, false, slot))
		answer = DatumGetBool(slot_getattr(slot, 1, &is_null)) && !is_null;
	ExecDropSingleTupleTableSlot(slot);
	return answer;
}

bool
papply_publisher_asks(WalReceiverConn *conn)
{
	MemoryContext old_context = CurrentMemoryContext;
	Oid			type = BOOLOID;
	WalRcvExecResult *result;
	bool		answer;

	/* the result's types are looked up */
	StartTransactionCommand();
	result = (papply_seam_server->walrcv_exec) (conn, query, 1, &type);
	answer = read_answer(result);
	walrcv_clear_result(result);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
	return answer;
}
