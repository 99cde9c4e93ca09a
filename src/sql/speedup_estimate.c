/*-------------------------------------------------------------------------
 * speedup_estimate.c
 *	  The function behind the view of the estimated speedup by more writers.
 *
 * Runs in a user's backend.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"

#include "pool.h"
#include "result_rows.h"
#include "speedup.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_get_speedup_estimate);

static void
put_speedup(PapplyRow *row, Oid subid, int writers, double speedup, uint64 transactions)
{
	papply_row_oid(row, "subid", subid);
	papply_row_value(row, "num_writers", INT4OID, Int32GetDatum(writers), false);
	papply_row_value(row, "speedup", FLOAT8OID, Float8GetDatum(speedup), false);
	papply_row_int8(row, "transactions", transactions, false);
	papply_row_put(row);
}

/*
 * papply_get_speedup_estimate() returns, for each subscription of the current database
 * that writers apply, a row for each number of writers.
 */
Datum
papply_get_speedup_estimate(PG_FUNCTION_ARGS)
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	PapplyPool *pool = palloc(sizeof(PapplyPool));
	const PapplySpeedup *speedup = &pool->speedup;
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		/* the receiver has yet to forget what is to be reset */
		if (!papply_pool_get(lfirst_oid(cell), pool) || speedup->transactions == 0 ||
			speedup->must_reset)
			continue;
		put_speedup(row, pool->subid, 1, 1.0, speedup->transactions);
		for (int i = 0; i < PAPPLY_SPEEDUPS; i++)
			put_speedup(row, pool->subid, papply_speedup_writers(i),
						speedup->work / Max(speedup->time[i], 1.0), speedup->transactions);
	}
	return (Datum) 0;
}
