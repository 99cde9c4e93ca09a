/*-------------------------------------------------------------------------
 * failed.h
 *	  Transactions that fail or were skipped.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAILED_H
#define PAPPLY_FAILED_H

#include "fmgr.h"
#include "replication/walreceiver.h"

#include "../sql/result_rows.h"
#include "statistics.h"

/*** failed_transactions.c ***/

/*
 * Set the columns of the view, except the name of the subscription.  User data
 * is included only if may_see is true.
 */
extern void papply_failed_set(PapplyRow *row, const PapplyStatistics *statistics, bool may_see);

/*
 * Return the statistics of a subscription whose last transaction failed, and
 * was neither applied nor skipped since.  Throws an error if it is another one.
 */
extern const PapplyStatistics *papply_failed_get(Oid subid);

/*** skip.c ***/

/*
 * Return the subscription of the skipped transaction with this number, whether
 * it is stored yet or not.  Throws an error if there is none, or if the user
 * is not the owner of the subscription.
 */
extern Oid	papply_skip_subscription(int64 id);

/*
 * Let the server skip the transaction that the statistics describe, when the
 * local transaction has committed.  Returns the number under which it will be
 * stored, or 0 if it is not to be.  The caller has a snapshot, and has called
 * papply_sql_change_subscription().
 */
extern int64 papply_skip_failed(FunctionCallInfo fcinfo, const PapplyStatistics *statistics,
								bool must_store);

/*** skipped_changes.c ***/

/*
 * Return the next message of a transaction, valid until the next call, or
 * NULL.
 */
typedef char *(*PapplyNextMessage) (void *source, int *length);

/*
 * Return the changes of all messages as the result of a set-returning function:
 * a number and a statement.  Throws an error if the user may not read a table.
 * subid is that of the messages if they were stored, so that tables may have been
 * renamed since, else InvalidOid.
 * Returns the number of messages other than definitions of relations.
 */
extern uint64 papply_change_statements_put(FunctionCallInfo fcinfo, Oid subid,
										   PapplyNextMessage next, void *source);

/*** publisher_sql.c ***/

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

/*** what failed.c calls at the start of the library ***/

/* Have skipped transactions stored. */
extern void papply_store_init(void);

/* Have DROP SUBSCRIPTION remove stored transactions, and other statements leave them. */
extern void papply_drop_stored_init(void);

#endif							/* PAPPLY_FAILED_H */
