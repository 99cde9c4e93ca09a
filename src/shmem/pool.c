/*-------------------------------------------------------------------------
 * pool.c
 *	  The life cycle of a pool.
 *
 * Runs in receivers, in writers, and in backends that read the views.
 *
 * The control data of a pool is in the server's main shared memory, not in the
 * dynamic segment of its queue.  The gate must be readable as long as any
 * writer exists, and views must be able to read the data without attaching to
 * a segment.  So it is in the slot of the subscription (slots.c).
 *
 * Locking: the lock of the slots protects in_use and generation.  A receiver
 * that starts a writer counts all writers with the lock held, so that receivers
 * together do not start too many.  Only the receiver writes the gate (is_open)
 * and the history.
 *
 * If a writer dies, its exit callback sets PAPPLY_WRITER_EXITED.  If the
 * receiver dies, its exit callback closes the gate and waits for the writers
 * to exit.  If a process is killed by SIGKILL, the postmaster reinitializes
 * shared memory and with it all pools.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "commands/trigger.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "utils/memutils.h"

#include "clock.h"
#include "pool.h"
#include "slots.h"
#include "test_hooks.h"

/*
 * Bounds of the time for which no pool is started after dynamic shared memory
 * ran out.  Meanwhile the transaction that needed the memory has to be
 * received and applied, which can take long.
 */
#define MIN_LACK_MS 60000
#define MAX_LACK_MS (24 * 3600 * 1000)

PapplyPool *papply_pool = NULL;
int			papply_pool_waiter = PAPPLY_WAITER_RECEIVER;

/*
 * Initialize all fields, except those that are kept from one pool of a slot to
 * the next.  Atomic variables of zero bytes have the value 0.
 */
static void
reset_pool(PapplyPool *pool)
{
	Size		kept = offsetof(PapplyPool, dbid);

	memset((char *) pool + kept, 0, sizeof(PapplyPool) - kept);
	pg_atomic_init_u64(&pool->queue.next_claim, 1);
	pg_atomic_init_u32(&pool->awake.limit, 1);
}

bool
papply_pool_acquire(Oid userid, PapplyOriginId origin)
{
	PapplyPool *pool;

	Assert(papply_pool == NULL);
	if (papply_subscription_slot == NULL)
		return false;
	pool = &papply_subscription_slot->pool;
	papply_slots_lock(LW_EXCLUSIVE);
	Assert(!pool->in_use);
	reset_pool(pool);
	pool->generation++;
	pool->dbid = papply_subscription_slot->dbid;
	pool->subid = papply_subscription_slot->subid;
	pool->userid = userid;
	pool->origin.id = origin;
	pool->receiver_proc = MyProc;
	pool->receiver_pid = MyProcPid;
	pool->is_open = true;
	pool->in_use = true;
	papply_slots_unlock();

	papply_pool = pool;
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	return true;
}

void
papply_pool_create_private(Oid dbid, Oid subid, Oid userid)
{
	PapplyPool *pool = MemoryContextAllocZero(TopMemoryContext, sizeof(PapplyPool));

	Assert(papply_pool == NULL);
	papply_slots_init_lock(&pool->registry_lock);
	reset_pool(pool);
	pg_atomic_write_u32(&pool->session.replication_role, SESSION_REPLICATION_ROLE_REPLICA);
	pool->dbid = dbid;
	pool->subid = subid;
	pool->userid = userid;
	pool->is_open = true;
	papply_pool = pool;
	papply_pool_waiter = 0;
}

void
papply_pool_close(void)
{
	Assert(papply_pool->receiver_proc == MyProc);
	papply_pool->is_open = false;
	pg_memory_barrier();		/* before any signal to writers */
}

void
papply_pool_release(void)
{
	papply_slots_lock(LW_EXCLUSIVE);
	Assert(papply_pool->in_use && papply_pool->receiver_proc == MyProc);
	papply_pool->in_use = false;
	papply_pool->receiver_proc = NULL;
	papply_slots_unlock();
	papply_pool = NULL;
}

/*** writers of all pools ***/

static bool
occupies_slot(const PapplyWriterSlot *writer)
{
	return writer->state != PAPPLY_WRITER_NONE && writer->state != PAPPLY_WRITER_FAILED &&
		writer->state != PAPPLY_WRITER_EXITED;
}

static int
count_writers(const PapplyPool *pool)
{
	int			count = 0;

	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		count += occupies_slot(&pool->writers[i]) ? 1 : 0;
	return count;
}

static PapplyPool *
next_pool(int *n)
{
	PapplySubscriptionSlot *slot;

	while ((slot = papply_slots_get((*n)++)) != NULL)
		if (slot->pool.in_use)
			return &slot->pool;
	return NULL;
}

/* Count the writers of all pools, but not more than limit of each. */
static int
count_all_writers(int limit)
{
	const PapplyPool *pool;
	int			count = 0;
	int			n = 0;

	while ((pool = next_pool(&n)) != NULL)
		count += Min(count_writers(pool), limit);
	return count;
}

bool
papply_pool_has_room(int max_writers)
{
	bool		has_room;

	papply_slots_lock(LW_SHARED);
	has_room = count_all_writers(PAPPLY_MAX_WRITERS) < max_writers;
	papply_slots_unlock();
	return has_room;
}

bool
papply_pool_claim_writer(int writer, int max_writers)
{
	PapplyWriterSlot *writer_slot = &papply_pool->writers[writer];
	bool		may_start;

	Assert(writer >= 0 && writer < PAPPLY_MAX_WRITERS);
	papply_slots_lock(LW_EXCLUSIVE);
	may_start = occupies_slot(writer_slot) || count_all_writers(PAPPLY_MAX_WRITERS) < max_writers;
	if (may_start)
		writer_slot->state = PAPPLY_WRITER_STARTING;
	papply_slots_unlock();
	return may_start;
}

PapplyWorkerCounts
papply_pool_count_workers(void)
{
	PapplyWorkerCounts counts = {0};

	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		pid_t		pid = ProcGlobal->allProcs[i].pid;
		const char *type = pid != 0 ? GetBackgroundWorkerTypeByPid(pid) : NULL;

		if (type == NULL)
			continue;
		if (strcmp(type, PAPPLY_WRITER_TYPE) == 0)
			counts.writers++;
		else if (strcmp(type, "parallel worker") == 0)
			counts.of_queries++;
		else
			counts.others++;
	}
	return counts;
}

/*
 * Each pool keeps the same number, or what it has if that is less.  What then
 * remains of max_writers is for the first pools.
 */
int
papply_pool_surplus(int max_writers)
{
	const PapplyPool *pool;
	int			ours;
	int			kept;
	int			n = 0;

	papply_slots_lock(LW_SHARED);
	ours = kept = count_writers(papply_pool);
	while (kept > 0 && count_all_writers(kept) > max_writers)
		kept--;
	if (kept < ours)
	{
		int			rest = max_writers - count_all_writers(kept);

		while ((pool = next_pool(&n)) != papply_pool)
			rest -= count_writers(pool) > kept ? 1 : 0;
		kept += rest > 0 ? 1 : 0;
	}
	papply_slots_unlock();
	return ours - kept;
}

void
papply_pool_note_short(bool is_short)
{
	if (papply_subscription_slot != NULL)
		papply_subscription_slot->data.history.short_at = is_short ? papply_clock_now() : 0;
}

bool
papply_pool_is_other_short(int64 ms)
{
	PapplySubscriptionSlot *slot;

	for (int i = 0; (slot = papply_slots_get(i)) != NULL; i++)
		if (slot != papply_subscription_slot && papply_clock_is_within(slot->data.history.short_at, ms))
			return true;
	return false;
}

Datum
papply_pool_writer_argument(int writer)
{
	return Int32GetDatum(papply_slots_number(papply_subscription_slot) * PAPPLY_MAX_WRITERS + writer);
}

bool
papply_pool_attach_writer(Datum argument, uint32 generation)
{
	PapplySubscriptionSlot *slot = papply_slots_get(DatumGetInt32(argument) / PAPPLY_MAX_WRITERS);
	int			writer = DatumGetInt32(argument) % PAPPLY_MAX_WRITERS;
	PapplyPool *pool = &slot->pool;
	bool		mine;

	papply_slots_lock(LW_SHARED);
	mine = pool->in_use && pool->is_open && pool->generation == generation;
	if (mine)
	{
		Assert(papply_pool == NULL);
		Assert(pool->writers[writer].state == PAPPLY_WRITER_STARTING);
		Assert(pool->writers[writer].proc == NULL);
		pool->writers[writer].pid = MyProcPid;
		pool->writers[writer].proc = MyProc;
		papply_subscription_slot = slot;
		papply_pool = pool;
		papply_pool_waiter = writer;
	}
	papply_slots_unlock();
	return mine;
}

void
papply_pool_set_fallback(XLogRecPtr final_lsn)
{
	if (papply_subscription_slot != NULL)
		papply_subscription_slot->data.history.fallback_final_lsn = final_lsn;
}

XLogRecPtr
papply_pool_get_fallback(void)
{
	return papply_subscription_slot->data.history.fallback_final_lsn;
}

void
papply_pool_set_refetched(XLogRecPtr final_lsn)
{
	if (papply_subscription_slot != NULL)
		papply_subscription_slot->data.history.refetched_final_lsn = final_lsn;
}

XLogRecPtr
papply_pool_get_refetched(void)
{
	return papply_subscription_slot->data.history.refetched_final_lsn;
}

void
papply_pool_note_lack(void)
{
	PapplyPoolHistory *history = &papply_subscription_slot->data.history;

	history->lack_at = papply_clock_now();
	history->lack_ms = Max(MIN_LACK_MS, Min(MAX_LACK_MS, 2 * history->lack_ms));
}

bool
papply_pool_has_lacked(void)
{
	return papply_subscription_slot != NULL &&
		papply_clock_is_within(papply_subscription_slot->data.history.lack_at,
							   papply_subscription_slot->data.history.lack_ms);
}

void
papply_pool_set_state(PapplyWriterState state)
{
	Assert(state >= PAPPLY_WRITER_IDLE && state <= PAPPLY_WRITER_WAIT_LEADER);
	papply_pool_my_writer_slot()->state = state;
}

bool
papply_pool_get(Oid subid, PapplyPool *copy)
{
	PapplySubscriptionSlot *slot;
	bool		is_there;

	papply_slots_lock(LW_SHARED);
	slot = papply_slots_find(subid);
	is_there = slot != NULL && slot->pool.in_use;
	if (is_there)
		memcpy(copy, &slot->pool, sizeof(PapplyPool));
	papply_slots_unlock();
	return is_there;
}

PapplyPool *
papply_pool_next_other(int *n)
{
	PapplyPool *pool = next_pool(n);

	return pool == papply_pool ? next_pool(n) : pool;
}

void
papply_pool_cancel(void)
{
	int			save_errno = errno;

	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
	errno = save_errno;
}

bool
papply_pool_is_retired(void)
{
	return pg_atomic_read_u64(&papply_pool->wanted_writers) <= papply_pool_waiter;
}

bool
papply_pool_may_sleep(void)
{
	return papply_pool->is_open &&
		!(INTERRUPTS_PENDING_CONDITION() && INTERRUPTS_CAN_BE_PROCESSED());
}

void
papply_pool_wake(int waiter)
{
	PGPROC	   *proc;

	Assert(waiter >= 0 && waiter < PAPPLY_WAITERS);
	if (waiter == PAPPLY_WAITER_RECEIVER)
		proc = papply_pool->receiver_proc;
	else
		proc = papply_pool->writers[waiter].proc;
	papply_test_delay_wake();
	if (proc != NULL)
		SetLatch(&proc->procLatch);
}
