/*-------------------------------------------------------------------------
 * slow_log.c
 *	  Log remote transactions that take long to apply.
 *
 * Runs in writers and, for what the core apply loop applies, in the receiver.
 *
 * A batch is one local transaction and is logged as one.  Its time is that
 * from its writer's first attempt to the commit, including waits.  A writer's
 * waits for locks are an estimate (status.c), which may exceed the time of the
 * transaction; those of the core apply loop are measured (leader_waits.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "replication/worker_internal.h"

#include "clock.h"
#include "slow_log.h"

bool
papply_slow_log_is_on(void)
{
	return papply_log_min_duration >= 0;
}

static double
waited_ms(const PapplyApplied *applied, PapplyCounter counter)
{
	return applied->waited_us[counter - PAPPLY_FIRST_TIME] / 1000.0;
}

static void
describe(const PapplyApplied *applied, double ms)
{
	double		lock_ms = Min(waited_ms(applied, PAPPLY_COUNT_LOCK_US), ms);

	if (applied->is_native)
		errdetail_plural("It finished at " PAPPLY_LSN_FORMAT ", has %llu change, and was applied by the apply worker. Waits: %.3f ms for locks.",
						 "It finished at " PAPPLY_LSN_FORMAT ", has %llu changes, and was applied by the apply worker. Waits: %.3f ms for locks.",
						 applied->changes,
						 LSN_FORMAT_ARGS(applied->final_lsn), (unsigned long long) applied->changes, lock_ms);
	else
		errdetail_plural("It finished at " PAPPLY_LSN_FORMAT " and has %llu change. Waits: %.3f ms for dependencies, %.3f ms for prior commits, %.3f ms for data, about %.0f ms for locks.",
						 "It finished at " PAPPLY_LSN_FORMAT " and has %llu changes. Waits: %.3f ms for dependencies, %.3f ms for prior commits, %.3f ms for data, about %.0f ms for locks.",
						 applied->changes,
						 LSN_FORMAT_ARGS(applied->final_lsn), (unsigned long long) applied->changes,
						 waited_ms(applied, PAPPLY_COUNT_DEPENDENCY_US),
						 waited_ms(applied, PAPPLY_COUNT_COMMIT_ORDER_US),
						 waited_ms(applied, PAPPLY_COUNT_DATA_US),
						 lock_ms);
}

/* Hide the context, which would describe the last message. */
void
papply_slow_log_report(const PapplyApplied *applied, int64 began_at)
{
	double		ms = (papply_clock_now() - began_at) / 1000.0;

	if (ms < papply_log_min_duration || !errstart(LOG, TEXTDOMAIN))
		return;
	if (applied->transactions == 1)
		errmsg("remote transaction %u of subscription \"%s\" took %.3f ms",
			   applied->remote_xid, MySubscription->name, ms);
	else
		errmsg("%llu remote transactions up to %u of subscription \"%s\" took %.3f ms",
			   (unsigned long long) applied->transactions, applied->remote_xid,
			   MySubscription->name, ms);
	describe(applied, ms);
	errhidecontext(true);
	errfinish(__FILE__, __LINE__, __func__);
}
