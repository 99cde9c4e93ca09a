/*-------------------------------------------------------------------------
 * room: receiver
 *
 * native_streams.h
 *	  Streamed transactions that PostgreSQL's own loop spools.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_NATIVE_STREAMS_H
#define PAPPLY_NATIVE_STREAMS_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/* The native loop gets a chunk of this transaction. */
extern void papply_native_streams_begin(TransactionId xid);

/* It gets the end of this transaction; of one that it does not know: nothing happens. */
extern void papply_native_streams_end(TransactionId xid);

/*
 * The subtransaction, or the transaction if both are the same, was rolled back: may the
 * native loop be told?
 */
extern bool papply_native_streams_abort(TransactionId xid, TransactionId subxid);

/* Does it spool transactions? */
extern bool papply_native_streams_exist(void);

/*
 * walrcv_receive() of a worker that synchronises a table: the server's own, without
 * what its loop may not be told.
 */
extern int	papply_native_streams_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd);

#endif							/* PAPPLY_NATIVE_STREAMS_H */
