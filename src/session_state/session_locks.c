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
 * which is the receiver's.  A writer that finds such a lock at the end of a
 * transaction rolls back, and leaves the transaction to the native loop.  As
 * long as the receiver keeps a lock, all transactions that run triggers are
 * left to the native loop, because it is not known which triggers take, test
 * or release the lock.  These transactions are applied one after the other in
 * any case.
 *
 * Functions that run without a trigger, for example in a CHECK constraint, are
 * not expected to take locks.  If one does, its writer releases the lock after
 * the commit.  A writer that waits for a lock of the receiver's session is
 * recalled (blockers.c) until its transaction is left to the native loop.
 * This guarantees progress.
 *
 * A transaction that fails would end PostgreSQL's own apply worker and release
 * its locks.  So a writer releases all of them when it rolls back.
 *
 * Locking: the receiver alone writes has_session_locks.  If a writer reads an
 * older value, blockers.c resolves the consequences.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "storage/lock.h"
#include "storage/proc.h"

#include "pool.h"
#include "session_locks.h"

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

	list_free_deep(found);
	return has_some;
}

/*** receiver ***/

void
papply_session_locks_note(void)
{
	bool		has_locks;

	if (IsTransactionState())
		return;
	has_locks = session_has_locks();
	pg_atomic_write_u32(&papply_pool->has_session_locks, has_locks);
	if (!has_locks || has_reported)
		return;
	has_reported = true;
	ereport(LOG,
			(errmsg("apply worker of subscription \"%s\" keeps an advisory lock",
					MySubscription->name),
			 errdetail("Transactions that run triggers are applied by PostgreSQL's own apply until it is released.")));
}

/*** any process ***/

bool
papply_session_locks_are_kept(void)
{
	return pg_atomic_read_u32(&papply_pool->has_session_locks) != 0;
}

/*** writers ***/

void
papply_session_locks_refuse(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("session-level advisory locks are left to the apply worker")));
}

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

	foreach(lc, find_advisory_locks())
		if (release_from_session(lfirst(lc)))
		papply_session_locks_refuse();
}

void
papply_session_locks_release(void)
{
	LockReleaseSession(USER_LOCKMETHOD);
}

void
papply_session_locks_release_rest(void)
{
	if (!session_has_locks())
		return;
	papply_session_locks_release();
	ereport(LOG,
			(errmsg("session-level advisory lock is released after the commit"),
			 errdetail("It was taken by a function of subscription \"%s\" that no trigger calls.",
					   MySubscription->name)));
}
