/*-------------------------------------------------------------------------
 * advice.c
 *	  Data for parallel_apply.advice() that SQL cannot obtain.
 *
 * Runs in a user's backend.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <unistd.h>

#include "fmgr.h"

#include "pool.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_find_subscription);
PG_FUNCTION_INFO_V1(papply_get_processors);
PG_FUNCTION_INFO_V1(papply_get_worker_processes);

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
 * papply_get_worker_processes() returns how many background workers run, without those of
 * queries.  pg_stat_activity does not show every user what each process is.
 */
Datum
papply_get_worker_processes(PG_FUNCTION_ARGS)
{
	PapplyWorkerCounts counts = papply_pool_count_workers();

	PG_RETURN_INT32(counts.writers + counts.others);
}
