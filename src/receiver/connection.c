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
PapplyLastMessage papply_connection_last;
