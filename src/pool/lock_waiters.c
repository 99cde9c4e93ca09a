/*-------------------------------------------------------------------------
 * lock_waiters.c
 *	  Who waits for a lock of a process?
 *
 * Runs in writers and in the receiver.
 *
 * pg_blocking_pids() answers the question the other way round: it has to be asked for
 * each process that waits, and locks the whole lock table.  Here only the locks of one
 * process are looked at, one part of the table after the other.
 *
 * Locks of the fast path are not in the table.  Nobody waits for them: who would
 * have to, moves them into the table before.
 *
 * Locking: the locks of a process, and the queue of a lock, are protected by the lock of
 * their part of the table.  Whether a part has any is looked at without it, as a hint.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "storage/lock.h"

#include "lock_waiters.h"
#include "pool.h"

static bool
is_of_pool(const PGPROC *proc)
{
	if (proc == papply_pool->receiver_proc)
		return true;
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (papply_pool->writers[i].proc == proc)
			return true;
	return false;
}

static bool
has_waiter(const PROCLOCK *held)
{
	LOCK	   *lock = held->tag.myLock;
	LockMethod	method = GetLocksMethodTable(lock);
	PGPROC	   *waiter = NULL;

	if (held->holdMask == 0)
		return false;
	while ((waiter = papply_compat_next_waiter(lock, waiter)) != NULL)
		if ((method->conflictTab[waiter->waitLockMode] & held->holdMask) != 0 &&
			!is_of_pool(waiter))
			return true;
	return false;
}

static bool
has_waiter_in(PGPROC *proc, int partition)
{
	PROCLOCK   *held = NULL;
	bool		found = false;

	if (papply_compat_next_proclock(proc, partition, NULL) == NULL)
		return false;
	LWLockAcquire(LockHashPartitionLockByIndex(partition), LW_SHARED);
	while (!found && (held = papply_compat_next_proclock(proc, partition, held)) != NULL)
		found = has_waiter(held);
	LWLockRelease(LockHashPartitionLockByIndex(partition));
	return found;
}

bool
papply_lock_waiters_exist(PGPROC *proc)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
		if (has_waiter_in(proc, i))
			return true;
	return false;
}
