/*-------------------------------------------------------------------------
 * native_watch.h
 *	  Note what passes while PostgreSQL's own apply is chosen.
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
extern bool papply_native_watch_is_on(void);

/*
 * walrcv_receive() for that time, with the length in *length.  Returns false
 * if the watch has ended, with nothing received, between two transactions.
 */
extern bool papply_native_watch_receive(WalReceiverConn *conn, char **buffer,
										pgsocket *wait_fd, int *length);

#endif							/* PAPPLY_NATIVE_WATCH_H */
