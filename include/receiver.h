/*-------------------------------------------------------------------------
 * room: receiver
 *
 * receiver.h
 *	  What the seam calls in a leader apply worker.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RECEIVER_H
#define PAPPLY_RECEIVER_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/* Each has the contract of the server's function of that name. */
extern int	papply_receiver_receive(WalReceiverConn *conn, char **buffer,
									pgsocket *wait_fd);
extern void papply_receiver_send(WalReceiverConn *conn, const char *buffer, int nbytes);

/*
 * Before the stream is started, by this connection.  Shall there be a pool?  No transaction
 * is open.
 */
extern bool papply_receiver_prepare_stream(WalReceiverConn *conn);

#endif							/* PAPPLY_RECEIVER_H */
