/*-------------------------------------------------------------------------
 * writer_gain.c
 *	  The function behind the view of the estimated speedup by more writers.
 *
 * Runs in a user's backend.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"

#include "gain.h"
#include "result_rows.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_get_speedup_estimate);

static const PapplyResultColumn estimate_columns[] = {
	{"subid", OIDOID},
	{"num_writers", INT4OID},
	{"speedup", FLOAT8OID},
	{"transactions", INT8OID}
};

static void
put_gain(PapplyResultRows *rows, Oid subid, int writers, double gain, uint64 transactions)
{
	Datum		values[lengthof(estimate_columns)];
	bool		nulls[lengthof(estimate_columns)] = {false};

	values[0] = ObjectIdGetDatum(subid);
	values[1] = Int32GetDatum(writers);
	values[2] = Float8GetDatum(gain);
	values[3] = Int64GetDatum(transactions);
	papply_result_rows_put(rows, values, nulls);
}

/*
 * papply_get_speedup_estimate() returns, for each subscription of the current database
 * that writers apply, a row for each number of writers.
 */
Datum
papply_get_speedup_estimate(PG_FUNCTION_ARGS)
{
	PapplyResultRows *rows = papply_result_rows_begin(fcinfo, estimate_columns, lengthof(estimate_columns));
	PapplyPool *pool = palloc(sizeof(PapplyPool));
	const PapplyGain *gain = &pool->gain;
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		if (!papply_pool_get(lfirst_oid(cell), pool) || gain->transactions == 0)
			continue;
		put_gain(rows, pool->subid, 1, 1.0, gain->transactions);
		for (int i = 0; i < PAPPLY_GAINS; i++)
			put_gain(rows, pool->subid, papply_gain_writers(i),
					 gain->work / Max(gain->time[i], 1.0), gain->transactions);
	}
	return (Datum) 0;
}
