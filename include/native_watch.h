/*-------------------------------------------------------------------------
 * room: receiver
 *
 * native_watch.h
 *	  What is noted of messages while PostgreSQL's own apply is chosen.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_NATIVE_WATCH_H
#define PAPPLY_NATIVE_WATCH_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/*
 * Between transactions, while papply_lifecycle_has_chosen_native() and nothing is kept
 * in the spool: messages go to the core apply loop as they come from here on.
 */
extern void papply_native_watch_begin(void);
extern bool papply_native_watch_is_on(void);

/*
 * While it is on: walrcv_receive(), with the length in *length.  Returns false, with
 * nothing received, if it is off from here on, between two transactions.
 */
extern bool papply_native_watch_receive(WalReceiverConn *conn, char **buffer,
										pgsocket *wait_fd, int *length);

#endif							/* PAPPLY_NATIVE_WATCH_H */
