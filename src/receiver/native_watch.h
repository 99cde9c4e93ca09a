/*-------------------------------------------------------------------------
 * native_watch.h
 *	  Receive messages while PostgreSQL's own apply is chosen.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_NATIVE_WATCH_H
#define PAPPLY_NATIVE_WATCH_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/*
 * From now on, messages go to the core apply loop as they arrive.  Called
 * between transactions, while papply_lifecycle_has_chosen_native() is true and
 * the spool is empty.
 */
extern void papply_native_watch_begin(void);

/*
 * walrcv_receive() for that time.  Returns the constant after it, with nothing
 * received, between two transactions.
 */
extern int	papply_native_watch_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd);

#define PAPPLY_NOT_WATCHING (-2)

#endif							/* PAPPLY_NATIVE_WATCH_H */
