/*-------------------------------------------------------------------------
 * advice.c
 *	  What parallel_apply.advice() cannot find out in SQL.
 *
 * Runs in a user's backend.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <unistd.h>

#include "fmgr.h"
#include "funcapi.h"

#include "pool.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_find_subscription);
PG_FUNCTION_INFO_V1(papply_get_processors);
PG_FUNCTION_INFO_V1(papply_get_queues);

#define QUEUES_COLUMNS 3

/*
 * papply_find_subscription(name) returns the OID of a subscription of the current
 * database, or throws.
 */
Datum
papply_find_subscription(PG_FUNCTION_ARGS)
{
	PG_RETURN_OID(papply_sql_get_subscription(fcinfo, 0));
}

/*
 * papply_get_processors() returns how many the server has.
 */
Datum
papply_get_processors(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(sysconf(_SC_NPROCESSORS_ONLN));
}

/*
 * papply_get_queues() returns how much the queue of each subscription of the current
 * database that has one can hold.
 */
Datum
papply_get_queues(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	PapplyPool *pool = palloc(sizeof(PapplyPool));
	int			n = 0;

	InitMaterializedSRF(fcinfo, 0);
	while (papply_pool_peek_here(&n, pool))
	{
		Datum		values[QUEUES_COLUMNS];
		bool		nulls[QUEUES_COLUMNS] = {false};

		values[0] = ObjectIdGetDatum(pool->subid);
		values[1] = Int64GetDatum(pool->ring_bytes);
		values[2] = Int64GetDatum(pool->transaction_slots);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
