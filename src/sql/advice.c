/*-------------------------------------------------------------------------
 * advice.c
 *	  Data for parallel_apply.advice() that SQL cannot obtain.
 *
 * Runs in a user's backend.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <unistd.h>

#include "catalog/pg_type.h"
#include "fmgr.h"

#include "pool.h"
#include "result_rows.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_find_subscription);
PG_FUNCTION_INFO_V1(papply_get_processors);
PG_FUNCTION_INFO_V1(papply_get_queues);

static const PapplyResultColumn queue_columns[] = {
	{"subid", OIDOID},
	{"max_bytes", INT8OID},
	{"max_transactions", INT8OID}
};

/*
 * papply_find_subscription(name) returns the OID of a subscription of the current
 * database, or throws.
 */
Datum
papply_find_subscription(PG_FUNCTION_ARGS)
{
	PG_RETURN_OID(papply_sql_get_subscription(fcinfo, 0));
}

/* papply_get_processors() returns the number of processors of the server. */
Datum
papply_get_processors(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sysconf(_SC_NPROCESSORS_ONLN));
}

/*
 * papply_get_queues() returns the capacity of each queue of the subscriptions
 * in the current database.
 */
Datum
papply_get_queues(PG_FUNCTION_ARGS)
{
	PapplyResultRows *rows = papply_result_rows_begin(fcinfo, queue_columns, lengthof(queue_columns));
	PapplyPool *pool = palloc(sizeof(PapplyPool));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		Datum		values[lengthof(queue_columns)];
		bool		nulls[lengthof(queue_columns)] = {false};

		if (!papply_pool_get(lfirst_oid(cell), pool))
			continue;
		values[0] = ObjectIdGetDatum(pool->subid);
		values[1] = Int64GetDatum(pool->ring_bytes);
		values[2] = Int64GetDatum(pool->transaction_slots);
		papply_result_rows_put(rows, values, nulls);
	}
	return (Datum) 0;
}
