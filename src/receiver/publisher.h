/*-------------------------------------------------------------------------
 * publisher.h
 *	  Find out what the publisher supports.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PUBLISHER_H
#define PAPPLY_PUBLISHER_H

#include "replication/walreceiver.h"

#include "due_flush.h"

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

#endif							/* PAPPLY_PUBLISHER_H */
