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

/*
 * Before the stream is started: how is it known that somebody waits for a flush?  At once,
 * if that cannot be found out.
 */
extern PapplyFlushes papply_publisher_flushes(WalReceiverConn *conn);

#endif							/* PAPPLY_PUBLISHER_H */
