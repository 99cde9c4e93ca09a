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
#include "message.h"

const WalReceiverFunctionsType *papply_connection_functions = NULL;
PapplyLastMessage papply_connection_last;

void
papply_connection_note_keepalive(const char *message)
{
	papply_connection_last.send_time = papply_message_get_uint64(message + 9);
	papply_connection_last.has_sent_all |= message[17] == 0;	/* no reply is requested */
}
