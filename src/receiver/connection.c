/*-------------------------------------------------------------------------
 * connection.c
 *	  The connection to the publisher: the server's functions for it, the
 *	  publisher's time, and what the publisher supports.
 *
 * Runs in the receiver.  Reads and writes go through the server's own functions
 * (libpqwalreceiver), so that encryption, authentication and errors are those
 * of PostgreSQL.
 *
 * If a pool is wanted, the publisher is asked for its settings before the stream
 * is started: until then a connection for logical replication accepts SQL as
 * well.  If a pool starts only later, because one writer was configured before,
 * a separate connection is made for the query.  PostgreSQL's own apply needs no
 * answer and sends no query.
 *
 * A publisher that preloads the library has its settings, and requests flushes
 * while it coalesces messages, which it may do for some roles or databases only.
 * The connection has the value that its walsender has.  pg_settings does not show
 * settings that occur only in the configuration file.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "utils/tuplestore.h"

#include "connection.h"

const WalReceiverFunctionsType *papply_connection_functions = NULL;
PapplyLastMessage papply_connection_last;

void
papply_connection_note_keepalive(const PapplyReceived *keepalive)
{
	papply_connection_last.send_time = keepalive->send_time;
	papply_connection_last.has_sent_all |= !keepalive->requests_reply;
}

/*** what it supports ***/

/*
 * Three columns, none of which is null: does the publisher request flushes?
 * Do sessions wait for them, as far as its configuration says?  They may also
 * wait in other modes than the default one, and for other standbys.  And how
 * long does this walsender wait for replies, in milliseconds?
 */
static const char *const query =
"SELECT EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = '" PAPPLY_NAME ".coalesce_messages' AND setting = 'on'),"
" pg_catalog.current_setting('synchronous_standby_names') <> ''"
" AND pg_catalog.current_setting('synchronous_commit') = 'on',"
" coalesce((SELECT setting::int FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'), 0)";

/*
 * Send the query.  Called in a transaction, because the types of the result
 * are looked up.
 */
static PapplyPublisher
ask_publisher(WalReceiverConn *conn)
{
	Oid			types[] = {BOOLOID, BOOLOID, INT4OID};
	WalRcvExecResult *result;
	TupleTableSlot *slot;
	PapplyPublisher answer = {PAPPLY_FLUSHES_AT_ONCE, 0};

	result = (papply_connection_functions->walrcv_exec) (conn, query, lengthof(types), types);
	if (result->status != WALRCV_OK_TUPLES)
		return answer;
	slot = MakeSingleTupleTableSlot(result->tupledesc, &TTSOpsMinimalTuple);
	if (tuplestore_gettupleslot(result->tuplestore, true, false, slot))
	{
		slot_getallattrs(slot);
		if (DatumGetBool(slot->tts_values[0]))
			answer.flushes = PAPPLY_FLUSHES_ASKED;
		else if (!DatumGetBool(slot->tts_values[1]))
			answer.flushes = PAPPLY_FLUSHES_DEFERRED;
		answer.timeout_ms = DatumGetInt32(slot->tts_values[2]);
	}
	ExecDropSingleTupleTableSlot(slot);
	walrcv_clear_result(result);
	return answer;
}

PapplyPublisher
papply_publisher_ask(WalReceiverConn *conn)
{
	MemoryContext old_context = CurrentMemoryContext;
	PapplyPublisher answer = {PAPPLY_FLUSHES_AT_ONCE, 0};
	WalReceiverConn *separate = NULL;
	char	   *error;

	StartTransactionCommand();
	if (conn == NULL)
		conn = separate = papply_compat_connect(papply_connection_functions, PAPPLY_NAME, &error);
	if (conn != NULL)
		answer = ask_publisher(conn);
	else
		ereport(DEBUG1,
				(errmsg_internal("could not ask the publisher of subscription \"%s\" for its settings: %s",
								 MySubscription->name, error)));
	if (separate != NULL)
		(papply_connection_functions->walrcv_disconnect) (separate);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
	return answer;
}
