/*-------------------------------------------------------------------------
 * worker_wake.c
 *	  Apply workers that are to look at what a transaction has changed.
 *
 * Runs in a user's backend.
 *
 * An idle apply worker looks for invalidations once a second; this is for
 * those who do not want to wait for it.  It must come after the invalidations
 * have been sent, which a transaction callback does not: the release of locks
 * does, and has a callback, too.  A subtransaction that is rolled back leaves
 * its subscriptions behind: woken for nothing.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/memutils.h"
#include "utils/resowner.h"

#include "worker_wake.h"

static List *subscriptions = NIL;	/* in TopTransactionContext */

static void
wake_after_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	ListCell   *cell;

	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level)
		return;
	if (is_commit)
	{
		foreach(cell, subscriptions)
			papply_compat_wake_leader(lfirst_oid(cell));
	}
	subscriptions = NIL;
}

void
papply_worker_wake_at_commit(Oid subid)
{
	static bool has_callback = false;
	MemoryContext old_context = MemoryContextSwitchTo(TopTransactionContext);

	if (!has_callback)
		RegisterResourceReleaseCallback(wake_after_release, NULL);
	has_callback = true;
	subscriptions = list_append_unique_oid(subscriptions, subid);
	MemoryContextSwitchTo(old_context);
}

bool
papply_worker_wake_is_pending(Oid subid)
{
	return list_member_oid(subscriptions, subid);
}
