/*-------------------------------------------------------------------------
 * walrcv_hook.c
 *	  Replace the server's table of receiver functions.
 *
 * Runs in the postmaster, from which every process inherits the table, and
 * then in any process that connects to a publisher.
 *
 * The apply worker calls its publisher through WalReceiverFunctions,
 * which libpqwalreceiver sets when it is loaded.  This file loads it first,
 * copies its table, replaces five functions in the copy, and points the
 * variable to the copy.  The server's own load_file() later finds the library
 * loaded and changes nothing.  In processes other than workers of
 * subscriptions, the functions only call the server's.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"

#include "connection.h"
#include "modules.h"
#include "native_streams.h"
#include "receiver.h"
#include "status.h"
#include "table_copy.h"
#include "tap.h"
#include "test_hooks.h"

static WalReceiverFunctionsType hook;
static bool has_attached = false;	/* connect_to_server(), to the statistics */

/*
 * Connect to the publisher, and count errors of the apply worker from then on;
 * a failure to connect is the first one that counts.  Counting does not begin
 * before, because connecting may take minutes, during which the subscription
 * is not running.  Later connections are made by triggers, for example with
 * CREATE SUBSCRIPTION.  In PostgreSQL 16 and later, a missing password is
 * thrown as an error.
 */
static WalReceiverConn *
connect_to_server(PAPPLY_CONNECT_PARAMETERS)
{
	MemoryContext old_context = CurrentMemoryContext;
	WalReceiverConn *volatile conn = NULL;
	ErrorData  *volatile error = NULL;

	papply_table_copy_begin();
	if (has_attached || !papply_compat_am_leader_apply_worker())
		return (papply_connection_functions->walrcv_connect) (PAPPLY_CONNECT_ARGUMENTS);
	has_attached = true;
	PG_TRY();
	{
		conn = (papply_connection_functions->walrcv_connect) (PAPPLY_CONNECT_ARGUMENTS);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		error = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();
	papply_status_attach();
	if (error != NULL)
		ReThrowError(error);
	return conn;
}

static bool
start_streaming(WalReceiverConn *conn, const WalRcvStreamOptions *options)
{
	WalRcvStreamOptions ours = *options;

	if (papply_compat_am_leader_apply_worker())
	{
		if (papply_receiver_prepare_stream(conn))
			papply_compat_forbid_parallel_streaming(&ours);
		papply_tap_notify(PAPPLY_TAP_START);
		if (papply_tap_needs.whole)
			papply_compat_forbid_streaming(&ours);
	}
	return (papply_connection_functions->walrcv_startstreaming) (conn, &ours);
}

static int
receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	if (papply_compat_am_leader_apply_worker())
		return papply_receiver_receive(conn, buffer, wait_fd);
	if (papply_compat_am_sync_worker())
		return papply_native_streams_receive(conn, buffer, wait_fd);
	return (papply_connection_functions->walrcv_receive) (conn, buffer, wait_fd);
}

static void
send_message(WalReceiverConn *conn, const char *buffer, int nbytes)
{
	if (papply_compat_am_leader_apply_worker())
		papply_receiver_send(conn, buffer, nbytes);
	else
		(papply_connection_functions->walrcv_send) (conn, buffer, nbytes);
}

/* A worker that synchronizes a table executes one COPY. */
static WalRcvExecResult *
execute(WalReceiverConn *conn, const char *query, const int ntypes, const Oid *types)
{
	WalRcvExecResult *result = (papply_connection_functions->walrcv_exec) (conn, query, ntypes, types);

	if (result->status == WALRCV_OK_COPY_OUT)
		papply_table_copy_started();
	return result;
}

void
papply_walrcv_hook_install(void)
{
	load_file("libpqwalreceiver", false);
	if (WalReceiverFunctions == NULL)
		elog(ERROR, "libpqwalreceiver did not initialize correctly");

	papply_connection_functions = WalReceiverFunctions;
	hook = *WalReceiverFunctions;
	hook.walrcv_connect = connect_to_server;
	hook.walrcv_startstreaming = start_streaming;
	hook.walrcv_receive = receive;
	hook.walrcv_send = send_message;
	hook.walrcv_exec = execute;
	WalReceiverFunctions = &hook;
#ifdef PAPPLY_SELFTEST
	if (papply_selftest_server_functions)
		WalReceiverFunctions = unconstify(WalReceiverFunctionsType *, papply_connection_functions);
#endif
}
