/*-------------------------------------------------------------------------
 * selftest_routed.c
 *	  How many messages of a subscription were routed, for t/pool/unused.pl.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1; receivers count.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"

#include "statistics.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_routed_messages);

/* selftest_routed_messages(subid): since its apply worker started; NULL if it has none. */
Datum
papply_selftest_routed_messages(PG_FUNCTION_ARGS)
{
	Oid			subid = PG_GETARG_OID(0);
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));

	if (papply_statistics_get(subid, statistics) && statistics->receiver_pid != 0)
		PG_RETURN_INT64(statistics->progress.routed_messages);
	PG_RETURN_NULL();
}
