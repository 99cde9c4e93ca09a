/*-------------------------------------------------------------------------
 * connection.c
 *	  The connection to the publisher: the server's functions for it, and the
 *	  publisher's time.
 *
 * Runs in the receiver.  Reads and writes go through the server's own functions
 * (libpqwalreceiver), so that encryption, authentication and errors are those
 * of PostgreSQL.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "connection.h"

const WalReceiverFunctionsType *papply_connection_functions = NULL;

/* Of the last message. */
typedef struct LastMessage
{
	TimestampTz send_time;
	XLogRecPtr	lsn;
} LastMessage;

static LastMessage last;

void
papply_connection_set_send_time(TimestampTz send_time)
{
	last.send_time = send_time;
}

TimestampTz
papply_connection_send_time(void)
{
	return last.send_time;
}

void
papply_connection_set_lsn(XLogRecPtr lsn)
{
	last.lsn = lsn;
}

XLogRecPtr
papply_connection_lsn(void)
{
	return last.lsn;
}
