/*-------------------------------------------------------------------------
 * worker_wake.c
 *	  Wake apply workers that must notice what a transaction has changed.
 *
 * Runs in a user's backend.
 *
 * An idle apply worker processes invalidations once a second.  This file is
 * for changes that should take effect earlier.  The worker must be woken after
 * the invalidations have been sent.  Transaction callbacks run before that,
 * but there is also a callback at the release of locks, which comes after.
 * The subscriptions of a subtransaction that is rolled back are not removed,
 * and are woken without need.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/memutils.h"
#include "utils/resowner.h"

#include "worker_wake.h"

typedef struct Wakes
{
	List	   *subscriptions;	/* in TopTransactionContext */
	bool		has_callback;
} Wakes;

static Wakes wakes;

static void
wake_after_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	ListCell   *cell;

	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level)
		return;
	if (is_commit)
	{
		foreach(cell, wakes.subscriptions)
			papply_compat_wake_leader(lfirst_oid(cell));
	}
	wakes.subscriptions = NIL;
}

void
papply_worker_wake_at_commit(Oid subid)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopTransactionContext);

	Assert(IsTransactionState());
	if (!wakes.has_callback)
		RegisterResourceReleaseCallback(wake_after_release, NULL);
	wakes.has_callback = true;
	wakes.subscriptions = list_append_unique_oid(wakes.subscriptions, subid);
	MemoryContextSwitchTo(old_context);
}

bool
papply_worker_wake_is_pending(Oid subid)
{
	return list_member_oid(wakes.subscriptions, subid);
}
