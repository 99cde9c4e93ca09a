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

/*
 * The time, by the publisher's clock, at which it sent the latest message.
 * Messages for the native loop carry it.
 */
extern void papply_connection_set_send_time(TimestampTz send_time);
extern TimestampTz papply_connection_send_time(void);

/*
 * The position of what the latest message of a transaction comes from, in the
 * publisher's WAL.  BEGIN has that of the first change that is sent.
 */
extern void papply_connection_set_lsn(XLogRecPtr lsn);
extern XLogRecPtr papply_connection_lsn(void);

#endif							/* PAPPLY_CONNECTION_H */
