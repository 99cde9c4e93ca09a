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

/*
 * Before the stream is started: does the publisher ask for a flush that somebody waits for
 * (ask.c)?  False as well if that cannot be found out.
 */
extern bool papply_publisher_asks(WalReceiverConn *conn);

#endif							/* PAPPLY_PUBLISHER_H */
