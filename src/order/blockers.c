/*-------------------------------------------------------------------------
 * blockers.c
 *	  Processes that wait for a younger transaction: deadlocks of which the lock
 *	  manager sees only one half, and local sessions.
 *
 * Runs in writers, in the receiver, and in a user's backend that has called
 * replay() (failed/call_replay.c).
 *
 * Deadlocks
 *
 * Let O be the oldest uncommitted transaction.  The possible waits are:
 * - X waits for its turn or for a dependency.  It waits only for older
 *   transactions, hence in the end for O.  O itself never waits like this.
 * - O waits in the lock manager for another process of PostgreSQL.  This is as
 *   with serial apply, and the deadlock detector handles it.
 * - O waits in the lock manager for Y, which is younger and waits for its turn
 *   (or for a dependency, or for more data).  The lock manager sees only one
 *   half of this deadlock, so Y must find it.  A writer that sleeps in
 *   commit_order.c checks, after some tens of milliseconds and then regularly,
 *   whether it blocks the process of O, directly or through other processes,
 *   including local sessions.  If so, Y rolls back and is retried in its turn.
 * - O waits in the lock manager for Y, which applies changes.  Y checks at
 *   intervals, between two changes.
 * - O waits in the lock manager for Y, which waits there for another process:
 *   a local session, or a prepared transaction whose COMMIT PREPARED is
 *   younger than O.  Y cannot check.  Other writers do when they sleep; idle
 *   writers and the receiver do at intervals.  The process that finds the
 *   deadlock makes all younger transactions roll back (exclusive.c).
 * - O waits in the lock manager for a writer of another subscription.  That
 *   writer waits for its turn, hence for the oldest transaction of its
 *   subscription, which waits in the lock manager for Y.  This is handled in
 *   the same way, because the search follows the commit order of that pool.
 * - O waits in the lock manager for the receiver, whose session keeps an
 *   advisory lock (session_state.c).  The receiver finds this and makes O roll
 *   back, which the core apply loop then applies.
 * - The receiver waits for a worker that synchronizes a table, and that worker
 *   waits in the lock manager for Y.  Meanwhile nothing is received and no
 *   transaction of the core apply loop counts as committed.  So the worker is
 *   treated like O.
 * - The process of a replay waits in the lock manager for the session that has
 *   called replay(), which waits for that process.  The session finds this.
 *
 * The alternative, a heavyweight lock as the turn, would let the deadlock
 * detector choose the victim, which might be O.
 *
 * Local sessions
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
 * same for some time, and make it roll back (exclusive.c).  Idle writers and the
 * receiver do that as well, but less often.  If all processes of the pool wait
 * in the lock manager, none does.
 *
 * A streamed transaction that has not ended keeps its locks, as it does on the
 * publisher.
 *
 * pg_blocking_pids() answers the opposite question.  It would have to be
 * called for each waiting process, and it locks the whole lock table.  The
 * search examines only the locks of one process, in one partition of the lock
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

#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "blockers.h"
#include "clock.h"
#include "commit_order.h"
#include "exclusive.h"
#include "in_progress.h"
#include "owner.h"
#include "pool.h"
#include "queue.h"

/* Limit of the number of blocked processes that are followed. */
#define MAX_BLOCKERS 256

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

static int64 looked_at = 0;		/* by papply_blockers_look_if_due() */

/*** deadlocks ***/

/* Add a process.  0 is none, or a prepared transaction. */
static List *
add_pid(List *pids, int pid)
{
	if (pid == 0 || list_length(pids) >= MAX_BLOCKERS)
		return pids;
	return list_append_unique_int(pids, pid);
}

/*
 * Return the process that applies the oldest uncommitted transaction, or NULL
 * if none does yet.  This is a hint, because nothing is locked.  If the queue
 * has no such transaction, the core apply loop may apply one directly.
 */
static PGPROC *
process_of(uint64 oldest)
{
	PapplyWriterSlot *writer_slot;

	if (oldest > pg_atomic_read_u64(&papply_pool->queue.published_seqno) ||
		papply_queue_is_by_leader(papply_queue_transaction(oldest)))
		return papply_pool->receiver_proc;
	writer_slot = papply_owner_writer(papply_pool, oldest);
	return writer_slot ? writer_slot->proc : NULL;
}

/*
 * Return the processes that must not wait for a younger transaction and that
 * wait in the lock manager.
 */
static List *
find_waiting(uint64 oldest)
{
	PGPROC	   *proc = process_of(oldest);
	List	   *pids = NIL;

	if (proc != NULL && papply_compat_proc_waits_for_lock(proc))
		pids = add_pid(pids, proc->pid);
	if (papply_compat_waits_for_sync_worker(papply_pool->receiver_proc))
		pids = list_concat(pids, papply_compat_find_sync_workers(papply_pool->subid));
	return pids;
}

/*
 * Is this a writer of this pool that has to roll back but cannot check itself,
 * because it waits in the lock manager?
 */
static bool
must_roll_back(int pid, uint64 oldest)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PapplyWriterSlot *writer_slot = &papply_pool->writers[i];
		PGPROC	   *proc = writer_slot->proc;

		if (writer_slot->pid == pid)
			return proc != NULL && papply_compat_proc_waits_for_lock(proc) &&
				papply_exclusive_applies_younger(writer_slot, oldest);
	}
	return false;
}

/*
 * Return the first process that has to roll back among those for which the
 * given processes wait, directly or through others; or 0.  The search is
 * breadth first over pg_blocking_pids() and the commit order of other pools.
 */
static int
find_younger(List *pids, uint64 oldest)
{
	for (int i = 0; i < list_length(pids); i++)
	{
		int			pid = list_nth_int(pids, i);
		ArrayType  *blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
																	  Int32GetDatum(pid)));
		int32	   *blocker = (int32 *) ARR_DATA_PTR(blockers);
		int			n = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
		PapplyPool *pool = papply_owner_other_pool(pid);

		for (int j = 0; j < n; j++)
		{
			if (blocker[j] == MyProcPid ||
				(papply_pool != NULL && must_roll_back(blocker[j], oldest)))
				return blocker[j];
			pids = add_pid(pids, blocker[j]);
		}

		/* a writer of another subscription waits for the oldest one there */
		if (pool != NULL)
		{
			uint64		oldest_there = pg_atomic_read_u64(&pool->order.committed_seqno) + 1;
			PapplyWriterSlot *writer_slot = papply_owner_writer(pool, oldest_there);

			pids = add_pid(pids, pool->receiver_pid);
			pids = add_pid(pids, writer_slot != NULL ? writer_slot->pid : 0);
		}
	}
	return 0;
}

/*
 * Check whether the oldest transaction waits for a younger one.  Throws
 * PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if it waits for this process.  Makes all
 * younger transactions roll back if it waits for a process that cannot check
 * itself.
 */
static void
find_deadlock(void)
{
	uint64		oldest = papply_pool_committed() + 1;
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "parallel_apply blockers",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	int			younger = find_younger(find_waiting(oldest), oldest);
	PapplyWriterSlot *writer_slot;

	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
	Assert(!papply_pool_is_private());
	if (younger == 0)
		return;
	if (younger != MyProcPid)
	{
		papply_exclusive_put_in_force(oldest);
		if (papply_pool_waiter != PAPPLY_WAITER_RECEIVER)
			papply_exclusive_check(papply_in_progress_number());	/* it may be younger,
																	 * too */
	}
	else if (papply_pool_waiter != PAPPLY_WAITER_RECEIVER)
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_COMMIT_ORDER_ABORT),
				 errmsg("remote transaction is rolled back because an older one waits for it")));
	else if ((writer_slot = papply_owner_writer(papply_pool, oldest)) != NULL)
	{
		/*
		 * A lock that this session keeps.  Since it keeps one, writers run no
		 * user code (session_state.c), so this is not known to happen.
		 */
		papply_exclusive_roll_back(writer_slot, oldest);
	}
}

bool
papply_blockers_include_me(int pid)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "parallel_apply blockers",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	bool		includes_me = find_younger(list_make1_int(pid), PAPPLY_NO_SEQNO) == MyProcPid;

	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
	return includes_me;
}

/*** local sessions ***/

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
 * Make writers roll back that cannot look for themselves, because they do not
 * sleep in commit_order.c.
 */
static void
roll_back_others(uint64 oldest)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PapplyWriterSlot *writer_slot = &papply_pool->writers[i];
		uint64		first = first_of(i);
		PGPROC	   *proc = writer_slot->proc;

		if (proc != NULL && proc != MyProc && writer_slot->state == PAPPLY_WRITER_APPLYING &&
			is_before_turn(first, oldest) && is_waited_for(proc))
			papply_exclusive_roll_back(writer_slot, first);
	}
}

/*
 * Look for local sessions that wait for transactions whose turn has not come.
 * Throws PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if one waits for this writer.
 * Makes other writers roll back.
 */
static void
find_local_waiters(void)
{
	uint64		oldest = papply_pool_committed() + 1;

	if (is_held_up(oldest))
		roll_back_others(oldest);
	if (papply_pool_waiter == PAPPLY_WAITER_RECEIVER ||
		papply_pool_my_writer_slot()->state == PAPPLY_WRITER_APPLYING)
		return;
	if (is_before_turn(first_of(papply_pool_waiter), oldest) && is_waited_for(MyProc))
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_COMMIT_ORDER_ABORT),
				 errmsg("remote transaction is rolled back because a session waits for it before its turn")));
}

/*** when to look ***/

void
papply_blockers_look_if_due(void)
{
	if (!papply_clock_is_due(&looked_at, papply_clock_now(), PAPPLY_BLOCKERS_INTERVAL_MS))
		return;
	find_deadlock();
	find_local_waiters();
}

/*
 * A wait in the commit order may have to end by an error, for reasons that
 * commit_order.c need not know.
 */
static void
after_sleep(void)
{
	papply_in_progress_check();
	papply_in_progress_check_slots();
	papply_exclusive_check(papply_in_progress_number());
}

void
papply_blockers_begin_checks(void)
{
	static const PapplyWaitChecks checks = {
		.after_sleep = after_sleep,
		.find_deadlock = find_deadlock,
		.find_local_waiters = find_local_waiters,
	};

	papply_commit_order_set_checks(&checks);
}
