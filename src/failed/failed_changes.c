/*-------------------------------------------------------------------------
 * failed_changes.c
 *	  Return the changes of the transaction that fails as SQL statements.
 *
 * Runs in a user's backend.
 *
 * When a transaction fails, the apply worker has not even received all of it.
 * But the publisher has it until it is applied or skipped.  So it is read from
 * there, by a connection of its own, with a temporary copy of the
 * subscription's replication slot, which may be active.  So nothing has to be
 * kept for this, and it works after a crash and with a transaction of any
 * size.  The publisher decodes its WAL from the restart position of the slot,
 * and sends the rows in parts.
 *
 * The copy of a slot decodes prepared transactions only at their COMMIT
 * PREPARED.  Where the subscription gets them at their PREPARE, the plugin is
 * asked for that, too, which changes the copy.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_subscription.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "replication/logicalproto.h"
#include "replication/walreceiver.h"
#include "utils/builtins.h"
#include "utils/tuplestore.h"

#include "../sql/sql_common.h"
#include "failed.h"
#include "message.h"

PG_FUNCTION_INFO_V1(papply_get_failed_changes);

/* Number of messages that the publisher sends at a time. */
#define FETCHED_MESSAGES 1000

typedef struct Source
{
	WalReceiverConn *conn;
	WalRcvExecResult *result;	/* NULL: none yet */
	TupleTableSlot *slot;
} Source;

/*** the publisher ***/

static WalRcvExecResult *
execute(WalReceiverConn *conn, const char *query, Oid type)
{
	return papply_publisher_sql_execute(conn, query, type, "the transaction");
}

static char *
publication_names(void)
{
	StringInfoData names;
	ListCell   *cell;

	initStringInfo(&names);
	foreach(cell, MySubscription->publications)
		appendStringInfo(&names, "%s%s", names.len > 0 ? "," : "",
						 quote_identifier(strVal(lfirst(cell))));
	return names.data;
}

/*
 * Make the publisher decode the transaction, and open a cursor for it.  A
 * definition may be sent with an earlier transaction.
 */
static void
begin_reading(WalReceiverConn *conn, const PapplyFailedTransaction *failed)
{
	char	   *copy = psprintf(PAPPLY_NAME "_%u_%d", MySubscription->oid, MyProcPid);
	bool		is_two_phase = MySubscription->twophasestate == LOGICALREP_TWOPHASE_STATE_ENABLED;

	if (MySubscription->slotname == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("subscription \"%s\" has no replication slot", MySubscription->name)));
	walrcv_clear_result(execute(conn,
								psprintf("SELECT slot_name::text FROM pg_catalog.pg_copy_logical_replication_slot(%s, %s, true)",
										 quote_literal_cstr(MySubscription->slotname),
										 quote_literal_cstr(copy)),
								TEXTOID));
	walrcv_clear_result(execute(conn, "BEGIN", InvalidOid));
	walrcv_clear_result(execute(conn,
								psprintf("DECLARE messages NO SCROLL CURSOR FOR SELECT data"
										 " FROM pg_catalog.pg_logical_slot_peek_binary_changes(%s, '"
										 PAPPLY_LSN_FORMAT "', NULL, %s, 'publication_names', %s)"
										 " WHERE xid::text = '%u' OR pg_catalog.get_byte(data, 0) = %d",
										 quote_literal_cstr(copy),
										 LSN_FORMAT_ARGS(failed->final_lsn + 1),
										 is_two_phase ? "'proto_version', '3', 'two_phase', 'on'" :
										 "'proto_version', '1'",
										 quote_literal_cstr(publication_names()),
										 failed->remote_xid, LOGICAL_REP_MSG_RELATION),
								InvalidOid));
}

static void
clear_result(Source *source)
{
	if (source->result == NULL)
		return;
	ExecDropSingleTupleTableSlot(source->slot);
	walrcv_clear_result(source->result);
	source->result = NULL;
}

static void
fetch(Source *source)
{
	clear_result(source);
	source->result = execute(source->conn,
							 psprintf("FETCH %d FROM messages", FETCHED_MESSAGES), BYTEAOID);
	source->slot = MakeSingleTupleTableSlot(source->result->tupledesc, &TTSOpsMinimalTuple);
}

static char *
next_message(void *arg, int *length)
{
	Source	   *source = arg;
	bool		is_null;
	Datum		value;
	bytea	   *data;

	CHECK_FOR_INTERRUPTS();
	if (source->result == NULL ||
		!tuplestore_gettupleslot(source->result->tuplestore, true, false, source->slot))
	{
		fetch(source);
		if (!tuplestore_gettupleslot(source->result->tuplestore, true, false, source->slot))
			return NULL;
	}
	value = slot_getattr(source->slot, 1, &is_null);
	if (is_null)
		papply_message_malformed();
	data = DatumGetByteaPP(value);
	*length = VARSIZE_ANY_EXHDR(data);
	if (*length == 0)
		papply_message_malformed();
	return VARDATA_ANY(data);
}

/*** the function ***/

typedef struct Request
{
	FunctionCallInfo fcinfo;
	const PapplyFailedTransaction *failed;
} Request;

static void
put_changes(WalReceiverConn *conn, void *arg)
{
	Request    *request = arg;
	Source		source = {conn, NULL, NULL};

	begin_reading(conn, request->failed);
	if (papply_change_statements_put(request->fcinfo, InvalidOid, next_message, &source) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the publisher does not send the transaction that fails"),
				 errdetail("It was applied, skipped or rolled back meanwhile.")));
	clear_result(&source);
}

/*
 * papply_get_failed_changes(subscription) returns the changes of the transaction
 * that fails.
 */
Datum
papply_get_failed_changes(PG_FUNCTION_ARGS)
{
	Oid			subid = papply_sql_get_subscription(fcinfo, 0);
	Request		request = {fcinfo, NULL};

	papply_sql_check_owner(subid);
	request.failed = &papply_failed_get(subid)->failed;
	papply_publisher_sql_use(subid, put_changes, &request);
	return (Datum) 0;
}
