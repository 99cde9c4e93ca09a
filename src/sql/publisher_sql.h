/*-------------------------------------------------------------------------
 * publisher_sql.h
 *	  Connect to the publisher of a subscription, and execute SQL there.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PUBLISHER_SQL_H
#define PAPPLY_PUBLISHER_SQL_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/*
 * Call a function with a connection to the publisher, which is closed at the
 * end and after an error.  MySubscription is the subscription meanwhile.  The
 * caller has checked that the user owns it.
 */
extern void papply_publisher_sql_use(Oid subid, void (*function) (WalReceiverConn *conn, void *arg),
									 void *arg);

/*
 * Execute a statement that returns one column of this type, or no rows if it
 * is InvalidOid.  Throws an error if it fails: "could not get", followed by
 * what, "from the publisher".
 */
extern WalRcvExecResult *papply_publisher_sql_execute(WalReceiverConn *conn, const char *query,
													  Oid type, const char *what);

#endif							/* PAPPLY_PUBLISHER_SQL_H */
