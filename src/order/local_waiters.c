/*-------------------------------------------------------------------------
 * local_waiters.c
 *	  Roll back transactions for which local sessions wait before their turn.
 *
 * Runs in writers and in the receiver.
 *
 * A transaction that is applied before its turn keeps its locks until its turn
 * comes.  If the oldest transaction is blocked, for example by a local
 * session, other sessions would have to wait for rows that serial apply would
 * not have locked yet.  So a transaction is rolled back if a session waits for
 * it before its turn.  Its writer then waits for the turn outside of a
 * transaction, so each transaction is rolled back for this reason at most
 * once.  The creation of a logical slot is such a session: it waits for each
 * transaction that has an xid.
 *
 * A writer that sleeps in commit_order.c looks for sessions that wait for
 * itself.  A writer that applies changes, or waits in the lock manager, cannot
 * do this.  Other writers look for it once the oldest transaction has been the
 * same for some time, and recall it (retreat.c).  Idle writers and the
 * receiver do that as well, but less often.  If all processes of the pool wait
 * in the lock manager, none does.
 *
 * A streamed transaction that has not ended keeps its locks, as it does on the
 * publisher.
 *
 * pg_blocking_pids() answers the opposite question.  It would have to be
 * called for each waiting process, and it locks the whole lock table.  This
 * file examines only the locks of one process, in one partition of the lock
 * table after the other.  Like pg_blocking_pids(), it counts sessions that
 * queue for a lock behind a process and request a mode that conflicts with the
 * request of that process.  Fast-path locks are not in the lock table, but a
 * process that has to wait for one moves it there first.
 *
 * Locking: the lock of a partition protects the list of a process's locks in
 * that partition, and the wait queues of these locks.  Whether the list is
 * empty is read without the lock, as a hint.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "storage/lock.h"
#include "storage/proc.h"

#include "clock.h"
#include "commit_order.h"
#include "in_progress.h"
#include "local_waiters.h"
#include "retreat.h"

/*
 * The oldest transaction is held up if it has been the oldest for this time.
 */
#define HELD_UP_MS 25

/* The oldest transaction, as seen by this process. */
typedef struct Oldest
{
	uint64		seqno;
	int64		since;
} Oldest;

static Oldest seen = {.seqno = PAPPLY_NO_SEQNO};

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

/*
 * Does a process outside of this pool wait for proc at this lock?  The wait
 * queue is in the order in which processes get the lock.
 */
static bool
has_waiter(const PROCLOCK *proclock, const PGPROC *proc)
{
	LOCK	   *lock = proclock->tag.myLock;
	LockMethod	method = GetLocksMethodTable(lock);
	LOCKMASK	blocking = proclock->holdMask;
	PGPROC	   *waiter = NULL;

	while ((waiter = papply_compat_next_waiter(lock, waiter)) != NULL)
	{
		if (waiter == proc)
			blocking |= LOCKBIT_ON(waiter->waitLockMode);
		else if ((method->conflictTab[waiter->waitLockMode] & blocking) != 0 &&
				 !is_of_pool(waiter))
			return true;
	}
	return false;
}

/* Return whether a process outside of this pool waits for proc. */
static bool
is_waited_for(PGPROC *proc)
{
	bool		found = false;

	for (int i = 0; i < NUM_LOCK_PARTITIONS && !found; i++)
	{
		PROCLOCK   *proclock = NULL;

		if (papply_compat_next_proclock(proc, i, NULL) == NULL)
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		while (!found && (proclock = papply_compat_next_proclock(proc, i, proclock)) != NULL)
			found = has_waiter(proclock, proc);
		LWLockRelease(LockHashPartitionLockByIndex(i));
	}
	return found;
}

/*
 * Return the number of the first transaction that the writer applies;
 * PAPPLY_SEQNO_OPEN if it has no number yet.
 */
static uint64
first_of(int writer)
{
	uint64		first = pg_atomic_read_u64(&papply_pool->writers[writer].applied_first);

	return first == PAPPLY_SEQNO_OPEN ? papply_in_progress_number_of(writer) : first;
}

/* Return whether a writer has begun a transaction before its turn. */
static bool
is_before_turn(uint64 first, uint64 oldest)
{
	return first > oldest && first != PAPPLY_SEQNO_OPEN;
}

/*
 * Return whether the oldest transaction has been the same for HELD_UP_MS, as
 * seen by the calls of this process.
 */
static bool
is_held_up(uint64 oldest)
{
	int64		now = papply_clock_now();

	if (oldest == seen.seqno)
		return papply_clock_has_passed(seen.since, now, HELD_UP_MS);
	seen.seqno = oldest;
	seen.since = now;
	return false;
}

/*
 * Recall writers that cannot look for themselves, because they do not sleep in
 * commit_order.c.
 */
static void
recall_others(uint64 oldest)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PapplyWriterSlot *writer_slot = &papply_pool->writers[i];
		uint64		first = first_of(i);
		PGPROC	   *proc = writer_slot->proc;

		if (proc != NULL && proc != MyProc && writer_slot->state == PAPPLY_WRITER_APPLYING &&
			is_before_turn(first, oldest) && is_waited_for(proc))
			papply_retreat_recall(writer_slot, first);
	}
}

void
papply_local_waiters_look(void)
{
	uint64		oldest = papply_pool_committed() + 1;

	if (is_held_up(oldest))
		recall_others(oldest);
	if (papply_pool_waiter == PAPPLY_WAITER_RECEIVER)
		return;
	if (is_before_turn(first_of(papply_pool_waiter), oldest) && is_waited_for(MyProc))
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_COMMIT_ORDER_ABORT),
				 errmsg("remote transaction is rolled back because a session waits for it before its turn")));
}
