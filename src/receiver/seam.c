/*-------------------------------------------------------------------------
 * seam.c
 *	  Our table of receiver functions in place of the server's.
 *
 * Runs in the postmaster, from which every process inherits it, and then in
 * whatever process talks to a publisher.
 *
 * The native apply worker talks to its publisher through WalReceiverFunctions,
 * which libpqwalreceiver fills when it is loaded.  We load it first, copy its
 * table, replace four functions in the copy and point the variable at it; the
 * server's own load_file() later finds the library loaded and changes nothing.
 * All but workers of subscriptions pass straight through.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "utils/memutils.h"

#include "keep.h"
#include "native_streams.h"
#include "receiver.h"
#include "seam.h"
#include "status.h"

const WalReceiverFunctionsType *papply_seam_server = NULL;

static WalReceiverFunctionsType seam;

/*
 * Errors of the apply worker are counted from here on: that there is no connection will be
 * one.  Not before, since it may take minutes, for which the subscription is not running.
 * Connections after the first one are those of triggers (CREATE SUBSCRIPTION, say).  From
 * 16 on, that a password is missing is thrown.
 */
static WalReceiverConn *
connect_to_server(PAPPLY_CONNECT_PARAMETERS)
{
	static bool has_begun = false;
	MemoryContext old_context = CurrentMemoryContext;
	WalReceiverConn *volatile conn = NULL;
	ErrorData  *volatile error = NULL;

	if (has_begun || !papply_compat_am_leader_apply_worker())
		return (papply_seam_server->walrcv_connect) (PAPPLY_CONNECT_ARGUMENTS);
	has_begun = true;
	PG_TRY();
	{
		conn = (papply_seam_server->walrcv_connect) (PAPPLY_CONNECT_ARGUMENTS);
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

	if (papply_compat_am_leader_apply_worker() && papply_receiver_prepare_stream(conn))
		papply_compat_forbid_parallel_streaming(&ours);
	if (papply_compat_am_leader_apply_worker() && papply_keep_forbids_streaming())
		papply_compat_forbid_streaming(&ours);
	return (papply_seam_server->walrcv_startstreaming) (conn, &ours);
}

static int
receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	if (papply_compat_am_leader_apply_worker())
		return papply_receiver_receive(conn, buffer, wait_fd);
	if (papply_compat_am_sync_worker())
		return papply_native_streams_receive(conn, buffer, wait_fd);
	return (papply_seam_server->walrcv_receive) (conn, buffer, wait_fd);
}

static void
send_message(WalReceiverConn *conn, const char *buffer, int nbytes)
{
	if (papply_compat_am_leader_apply_worker())
		papply_receiver_send(conn, buffer, nbytes);
	else
		(papply_seam_server->walrcv_send) (conn, buffer, nbytes);
}

void
papply_seam_install(void)
{
	load_file("libpqwalreceiver", false);
	if (WalReceiverFunctions == NULL)
		elog(ERROR, "libpqwalreceiver did not initialize correctly");

	papply_seam_server = WalReceiverFunctions;
	seam = *WalReceiverFunctions;
	seam.walrcv_connect = connect_to_server;
	seam.walrcv_startstreaming = start_streaming;
	seam.walrcv_receive = receive;
	seam.walrcv_send = send_message;
	WalReceiverFunctions = &seam;
}
