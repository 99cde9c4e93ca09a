/*-------------------------------------------------------------------------
 * receiver.h
 *	  Receive and send functions that the walrcv hook calls in a leader apply
 *	  worker.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RECEIVER_H
#define PAPPLY_RECEIVER_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/* Same contracts as walrcv_receive() and walrcv_send(). */
extern int	papply_receiver_receive(WalReceiverConn *conn, char **buffer,
									pgsocket *wait_fd);
extern void papply_receiver_send(WalReceiverConn *conn, const char *buffer, int nbytes);

/*
 * Prepare for a stream that is about to start on conn, outside any
 * transaction.  Return whether there should be a pool.
 */
extern bool papply_receiver_prepare_stream(WalReceiverConn *conn);

#endif							/* PAPPLY_RECEIVER_H */
