/*-------------------------------------------------------------------------
 * resync.c
 *	  Have tables that differ copied again.
 *
 * parallel_apply.resync_table() begins the copy of a table, which the server then makes by
 * itself.  So if this program ends while it waits, the copies continue.  A
 * copy has ended when the state of the table is "s" or "r": what is left then is that apply
 * gets as far as the copy, for which the publisher may have to write more.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>

#include "common/logging.h"

#include "output.h"
#include "ranges.h"
#include "resync.h"
#include "server.h"

#define POLL_MS 100

/* Begin the copy of a table. */
static bool
begin_copy(const Table *table, PGconn *subscriber, const Subscription *subscription)
{
	PQExpBufferData sql;
	char	   *error;

	initPQExpBuffer(&sql);
	appendPQExpBufferStr(&sql, "SELECT parallel_apply.resync_table(");
	append_literal(&sql, subscription->name);
	appendPQExpBufferStr(&sql, ", ");
	append_literal(&sql, table->shown);
	appendPQExpBufferChar(&sql, ')');
	free(try_query_value(subscriber, sql.data, &error));
	termPQExpBuffer(&sql);
	if (error)
		pg_log_error("%s cannot be copied again: %s", table->shown, error);
	else
		fprintf(stderr, "%s is being copied again\n", table->shown);
	return error == NULL;
}

static void
wait_for_copy(const Table *table, PGconn *subscriber, const Subscription *subscription)
{
	PQExpBufferData sql;
	char	   *state;

	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql, "SELECT srsubstate FROM pg_subscription_rel WHERE srsubid = %s"
					  " AND srsubstate NOT IN ('s', 'r') AND srrelid = to_regclass(", subscription->oid);
	append_literal(&sql, table->shown);
	appendPQExpBufferChar(&sql, ')');
	while ((state = query_value(subscriber, sql.data)) != NULL)
	{
		struct pollfd socket = {.fd = PQsocket(subscriber),.events = POLLIN};

		free(state);
		(void) poll(&socket, 1, POLL_MS);	/* or until the server ends */
	}
	termPQExpBuffer(&sql);
	fprintf(stderr, "%s has been copied\n", table->shown);
}

bool
resync_tables(const Tables *tables, PGconn *subscriber, const Subscription *subscription)
{
	bool	   *is_copied = pg_malloc0(tables->count * sizeof(bool));
	bool		all = true;

	for (int i = 0; i < tables->count; i++)
	{
		if (!is_different(&tables->tables[i]))
			continue;
		is_copied[i] = begin_copy(&tables->tables[i], subscriber, subscription);
		all &= is_copied[i];
	}
	for (int i = 0; i < tables->count; i++)
		if (is_copied[i])
			wait_for_copy(&tables->tables[i], subscriber, subscription);
	free(is_copied);
	return all;
}
