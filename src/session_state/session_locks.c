/*-------------------------------------------------------------------------
 * session_locks.c
 *	  Advisory locks that user code keeps beyond its transaction.
 *
 * Runs in the receiver and in writers.
 *
 * pg_advisory_lock() in a trigger takes a lock for the session.  PostgreSQL's
 * own apply has one session, which keeps the lock against all others and can
 * take it again itself.  With several writers, the one that keeps the lock
 * would block the next one, and has no transaction to roll back.
 *
 * So such locks are kept by the session that would have them without writers,
 * which is the receiver's (single_session.c).  A writer that waits for a lock
 * of the receiver's session is recalled (blockers.c) until its transaction is
 * left to the core apply loop.  This guarantees progress.
 *
 * A transaction that fails would end PostgreSQL's own apply worker and release
 * its locks.  So a writer releases all of them when it rolls back.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "storage/lock.h"
#include "storage/proc.h"

#include "pool.h"
#include "session_locks.h"
#include "single_session.h"

static bool has_reported = false;	/* the receiver, that it keeps a lock */

/*
 * Return the advisory locks of this process, both of its session and its
 * transaction, as a list of LOCKTAG.  No other process adds or removes one, so
 * an empty partition need not be locked.
 */
static List *
find_advisory_locks(void)
{
	List	   *found = NIL;

	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		PROCLOCK   *held = NULL;

		if (papply_compat_next_proclock(MyProc, i, NULL) == NULL)
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		while ((held = papply_compat_next_proclock(MyProc, i, held)) != NULL)
		{
			LOCKTAG    *tag;

			if (held->tag.myLock->tag.locktag_lockmethodid != USER_LOCKMETHOD)
				continue;
			tag = palloc(sizeof(LOCKTAG));
			*tag = held->tag.myLock->tag;
			found = lappend(found, tag);
		}
		LWLockRelease(LockHashPartitionLockByIndex(i));
	}
	return found;
}

/* Outside of a transaction, all remaining locks belong to the session. */
static bool
session_has_locks(void)
{
	List	   *found = find_advisory_locks();
	bool		has_some = found != NIL;

	Assert(!IsTransactionState());
	list_free_deep(found);
	return has_some;
}

/*** receiver ***/

void
papply_session_locks_note(void)
{
	if (IsTransactionState() || has_reported || !session_has_locks())
		return;
	(void) papply_single_session_begin();
	has_reported = true;
	ereport(LOG,
			(errmsg("apply worker of subscription \"%s\" keeps an advisory lock",
					MySubscription->name),
			 errdetail("Transactions that run user code are applied by PostgreSQL's own apply until it starts again.")));
}

/*** writers ***/

static void
hide_warning(ErrorData *error)
{
	error->output_to_server = false;
}

/*
 * Release a lock if the session holds it, in either mode of advisory locks, and
 * return whether it did.  There is no other way to find out.  If the lock
 * belongs to the transaction, or is held in the other mode, the server issues a
 * WARNING, which is hidden.  LockRelease() throws no error here, so the hook is
 * always restored.
 */
static bool
release_from_session(const LOCKTAG *tag)
{
	emit_log_hook_type previous_hook = emit_log_hook;
	bool		is_released;

	emit_log_hook = hide_warning;
	is_released = LockRelease(tag, ExclusiveLock, true) || LockRelease(tag, ShareLock, true);
	emit_log_hook = previous_hook;
	return is_released;
}

void
papply_session_locks_check_end(void)
{
	ListCell   *lc;

	Assert(IsTransactionState());
	foreach(lc, find_advisory_locks())
		if (release_from_session(lfirst(lc)))
		(void) papply_single_session_begin();
	papply_single_session_check();
}

void
papply_session_locks_release(void)
{
	LockReleaseSession(USER_LOCKMETHOD);
}
