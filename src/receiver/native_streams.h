/*-------------------------------------------------------------------------
 * native_streams.h
 *	  Track streamed transactions that the core apply loop spools.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_NATIVE_STREAMS_H
#define PAPPLY_NATIVE_STREAMS_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/* The core apply loop gets a chunk of this transaction. */
extern void papply_native_streams_begin(TransactionId xid);

/*
 * The core apply loop gets the COMMIT or PREPARE of this transaction.  Throws
 * an error if it has got nothing else of the transaction: it would crash.
 */
extern void papply_native_streams_end(TransactionId xid);

/*
 * May the core apply loop get the message that the subtransaction, or the
 * transaction if both are the same, was rolled back?
 */
extern bool papply_native_streams_abort(TransactionId xid, TransactionId subxid);

/* Does the core apply loop spool transactions? */
extern bool papply_native_streams_exist(void);

/*
 * walrcv_receive() of a worker that synchronizes a table: call the server's
 * function, and drop messages that the core apply loop must not get.
 */
extern int	papply_native_streams_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd);

#endif							/* PAPPLY_NATIVE_STREAMS_H */
