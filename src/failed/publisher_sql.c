/*-------------------------------------------------------------------------
 * publisher_sql.c
 *	  Connect to the publisher of a subscription, and execute SQL there.
 *
 * Runs in a user's backend, which connects as the apply worker does.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_subscription.h"

#include "../receiver/connection.h"
#include "failed.h"

static WalReceiverConn *
connect_to_publisher(void)
{
	char	   *error;
	WalReceiverConn *conn = papply_compat_connect(papply_connection_functions, PAPPLY_NAME, &error);

	if (conn == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not connect to the publisher: %s", error)));
	return conn;
}

void
papply_publisher_sql_use(Oid subid, void (*function) (WalReceiverConn *conn, void *arg), void *arg)
{
	WalReceiverConn *volatile conn = NULL;

	MySubscription = GetSubscription(subid, false);
	PG_TRY();
	{
		conn = connect_to_publisher();
		function(conn, arg);
	}
	PG_FINALLY();
	{
		if (conn != NULL)
			(papply_connection_functions->walrcv_disconnect) (conn);
		MySubscription = NULL;
	}
	PG_END_TRY();
}

WalRcvExecResult *
papply_publisher_sql_execute(WalReceiverConn *conn, const char *query, Oid type, const char *what)
{
	WalRcvExecResult *result;

	result = (papply_connection_functions->walrcv_exec) (conn, query, OidIsValid(type) ? 1 : 0,
														 &type);
	if (result->status != (OidIsValid(type) ? WALRCV_OK_TUPLES : WALRCV_OK_COMMAND))
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_EXCEPTION),
				 errmsg("could not get %s from the publisher: %s", what,
						result->err ? result->err : "unexpected result")));
	return result;
}
