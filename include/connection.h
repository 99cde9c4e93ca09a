/*-------------------------------------------------------------------------
 * connection.h
 *	  The connection to the publisher: the server's functions for it, and the
 *	  publisher's time.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CONNECTION_H
#define PAPPLY_CONNECTION_H

#include "datatype/timestamp.h"
#include "replication/walreceiver.h"

/* The server's own functions, set when the library is loaded. */
extern const WalReceiverFunctionsType *papply_connection_functions;

/* The latest message; route.c and native_watch.c set it. */
typedef struct PapplyLastMessage
{
	TimestampTz send_time;		/* by the publisher's clock; messages for the
								 * core apply loop carry it */
	XLogRecPtr	lsn;			/* of what it comes from, in the publisher's
								 * WAL, if it is one of a transaction; BEGIN
								 * has that of the first change that is sent */
	bool		has_sent_all;	/* it is a keepalive by which the publisher
								 * says that it waits for new WAL */
} PapplyLastMessage;

extern PapplyLastMessage papply_connection_last;

/* A keepalive, whole, is the latest message. */
extern void papply_connection_note_keepalive(const char *message);

#endif							/* PAPPLY_CONNECTION_H */
