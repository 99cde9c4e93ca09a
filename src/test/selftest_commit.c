/*-------------------------------------------------------------------------
 * selftest_commit.c
 *	  A writer that stops in the middle of its commit.
 *
 * Runs in writers; only in a library made with SELFTEST=1.  A test of t/ has
 * selftest_hold_commit() as a trigger.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "test_hooks.h"

#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/resowner.h"


/* In the data directory. */
#define HOLD_FILE "hold_commit"

PG_FUNCTION_INFO_V1(papply_selftest_hold_commit);

typedef struct Hold
{
	bool		is_set;
	bool		has_callback;
} Hold;

static Hold hold;

/* Visible, and with all of its locks. */
static void
hold_commit(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (phase != RESOURCE_RELEASE_BEFORE_LOCKS || !is_top_level || !hold.is_set)
		return;
	hold.is_set = false;
	while (is_commit && access(HOLD_FILE, F_OK) == 0)
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1, PG_WAIT_EXTENSION);
}

/*
 * selftest_hold_commit(), for AFTER triggers: the transaction keeps its locks after its
 * commit as long as there is that file.
 */
Datum
papply_selftest_hold_commit(PG_FUNCTION_ARGS)
{
	if (!hold.has_callback)
		RegisterResourceReleaseCallback(hold_commit, NULL);
	hold.has_callback = hold.is_set = true;
	PG_RETURN_POINTER(NULL);
}
