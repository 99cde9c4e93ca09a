/*-------------------------------------------------------------------------
 * room: receiver
 *
 * publisher.h
 *	  What the publisher can do.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PUBLISHER_H
#define PAPPLY_PUBLISHER_H

#include "replication/walreceiver.h"

#include "due_flush.h"

typedef struct PapplyPublisher
{
	PapplyFlushes flushes;		/* how is it known that somebody waits for
								 * one? At once, if that cannot be found out */
	int			timeout_ms;		/* wal_sender_timeout; 0: none, or not known */
} PapplyPublisher;

/* Ask before the stream is started.  No transaction is open. */
extern PapplyPublisher papply_publisher_ask(WalReceiverConn *conn);

/*
 * Ask by a connection of its own, which ends.  If the publisher has no place for one, that
 * cannot be found out.  No transaction is open.
 */
extern PapplyPublisher papply_publisher_ask_separately(void);

#endif							/* PAPPLY_PUBLISHER_H */
