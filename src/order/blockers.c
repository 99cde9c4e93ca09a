/*-------------------------------------------------------------------------
 * blockers.c
 *	  Deadlocks of which the lock manager sees only one half.
 *
 * Runs in writers, in the receiver, and in a user's backend that has called
 * replay() (sql/call_replay.c).
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
 * - O waits in the lock manager for Y, which waits there for another process:
 *   a local session, or a prepared transaction whose COMMIT PREPARED is
 *   younger than O.  Y cannot check.  Other writers do when they sleep; idle
 *   writers and the receiver do at intervals.  The process that finds the
 *   deadlock makes all younger transactions retreat (retreat.c).
 * - O waits in the lock manager for a writer of another subscription.  That
 *   writer waits for its turn, hence for the oldest transaction of its
 *   subscription, which waits in the lock manager for Y.  This is handled in
 *   the same way, because the search follows the commit order of that pool.
 * - O waits in the lock manager for the receiver, whose session keeps an
 *   advisory lock (session_locks.c).  The receiver finds this and recalls O,
 *   which the core apply loop then applies.
 * - The receiver waits for a worker that synchronizes a table, and that worker
 *   waits in the lock manager for Y.  Meanwhile nothing is received and no
 *   transaction of the core apply loop counts as committed.  So the worker is
 *   treated like O.
 * - The process of a replay waits in the lock manager for the session that has
 *   called replay(), which waits for that process.  The session finds this.
 *
 * The alternative, a heavyweight lock as the turn, would let the deadlock
 * detector choose the victim, which might be O.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "blockers.h"
#include "clock.h"
#include "commit_order.h"
#include "local_waiters.h"
#include "owner.h"
#include "queue.h"
#include "retreat.h"

/* Limit of the number of blocked processes that are followed. */
#define MAX_BLOCKERS 256

/* This process. */
typedef struct Looked
{
	int64		at;				/* when papply_blockers_look_if_due() did so */
} Looked;

static Looked looked;

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

	if (oldest > pg_atomic_read_u64(&papply_pool->published_seqno) ||
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
is_to_retreat(int pid, uint64 oldest)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PapplyWriterSlot *writer_slot = &papply_pool->writers[i];
		PGPROC	   *proc = writer_slot->proc;

		if (writer_slot->pid == pid)
			return proc != NULL && papply_compat_proc_waits_for_lock(proc) &&
				papply_retreat_applies_younger(writer_slot, oldest);
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
				(papply_pool != NULL && is_to_retreat(blocker[j], oldest)))
				return blocker[j];
			pids = add_pid(pids, blocker[j]);
		}

		/* a writer of another subscription waits for the oldest one there */
		if (pool != NULL)
		{
			uint64		oldest_there = pg_atomic_read_u64(&pool->committed_seqno) + 1;
			PapplyWriterSlot *writer_slot = papply_owner_writer(pool, oldest_there);

			pids = add_pid(pids, pool->receiver_pid);
			pids = add_pid(pids, writer_slot != NULL ? writer_slot->pid : 0);
		}
	}
	return 0;
}

void
papply_blockers_look(void)
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
		papply_retreat_begin(oldest);
	else if (papply_pool_waiter != PAPPLY_WAITER_RECEIVER)
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_COMMIT_ORDER_ABORT),
				 errmsg("remote transaction is rolled back because an older one waits for it")));
	else if ((writer_slot = papply_owner_writer(papply_pool, oldest)) != NULL)
		papply_retreat_recall(writer_slot, oldest); /* a lock of this session */
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

void
papply_blockers_look_if_due(void)
{
	if (!papply_clock_is_due(&looked.at, papply_clock_now(), PAPPLY_BLOCKERS_INTERVAL_MS))
		return;
	papply_blockers_look();
	papply_local_waiters_look();
}
