/*-------------------------------------------------------------------------
 * writer_gain.c
 *	  The function behind the view of what more writers would gain.
 *
 * Runs in a user's backend.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "funcapi.h"

#include "gain.h"

PG_FUNCTION_INFO_V1(papply_get_speedup_estimate);

#define GAIN_COLUMNS 4

static void
put_gain(ReturnSetInfo *result, Oid subid, int writers, double gain, uint64 transactions)
{
	Datum		values[GAIN_COLUMNS];
	bool		nulls[GAIN_COLUMNS] = {false};

	values[0] = ObjectIdGetDatum(subid);
	values[1] = Int32GetDatum(writers);
	values[2] = Float8GetDatum(gain);
	values[3] = Int64GetDatum(transactions);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * papply_get_speedup_estimate() returns, for each subscription of the current database
 * that writers apply, a row for each number of writers.
 */
Datum
papply_get_speedup_estimate(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	PapplyPool *pool = palloc(sizeof(PapplyPool));
	int			n = 0;

	InitMaterializedSRF(fcinfo, 0);
	while (papply_pool_peek_here(&n, pool))
	{
		const PapplyGain *gain = &pool->gain;

		if (gain->transactions == 0)
			continue;
		put_gain(result, pool->subid, 1, 1.0, gain->transactions);
		for (int i = 0; i < PAPPLY_GAINS; i++)
			put_gain(result, pool->subid, papply_gain_writers(i),
					 gain->work / Max(gain->time[i], 1.0), gain->transactions);
	}
	return (Datum) 0;
}
