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

#include "message.h"

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

/* This keepalive is the latest message. */
extern void papply_connection_note_keepalive(const PapplyReceived *keepalive);

/*** what the publisher supports ***/

typedef enum PapplyFlushes
{
	PAPPLY_FLUSHES_AT_ONCE,		/* a session may wait for any of them */
	PAPPLY_FLUSHES_ASKED,		/* the publisher requests those that sessions
								 * wait for */
	PAPPLY_FLUSHES_DEFERRED		/* probably no session waits */
} PapplyFlushes;

typedef struct PapplyPublisher
{
	PapplyFlushes flushes;		/* how to know whether sessions wait for one;
								 * at once, if that is not known */
	int			timeout_ms;		/* wal_sender_timeout; 0: none, or not known */
} PapplyPublisher;

/*
 * Ask the publisher by conn, before the stream is started, or if that is NULL
 * by a separate connection, which is closed afterwards.  If the publisher
 * accepts none, nothing is known.  No transaction is open.
 */
extern PapplyPublisher papply_publisher_ask(WalReceiverConn *conn);

#endif							/* PAPPLY_CONNECTION_H */
