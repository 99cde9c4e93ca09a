/*-------------------------------------------------------------------------
 * wait_checks.c
 *	  What a process checks while it waits in the commit order.
 *
 * Runs in writers and in the receiver.
 *
 * A wait in the commit order may have to end by an error, for reasons that
 * commit_order.c need not know.  It calls the checks that are set here.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "blockers.h"
#include "commit_order.h"
#include "in_progress.h"
#include "local_waiters.h"
#include "retreat.h"
#include "wait_checks.h"

static void
after_sleep(void)
{
	papply_in_progress_check();
	papply_in_progress_check_slots();
	papply_retreat_check();
}

void
papply_wait_checks_begin(void)
{
	static const PapplyWaitChecks checks = {
		.after_sleep = after_sleep,
		.find_deadlock = papply_blockers_look,
		.find_local_waiters = papply_local_waiters_look,
	};

	papply_commit_order_set_checks(&checks);
}
