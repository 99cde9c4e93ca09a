/*-------------------------------------------------------------------------
 * pool.c
 *	  The directory of pools, and the life cycle of a pool.
 *
 * Runs in the postmaster (sizing), in receivers, in writers, and in backends
 * that read the views.
 *
 * The control data of a pool is in the server's main shared memory, not in the
 * dynamic segment of its queue.  The gate must be readable as long as any
 * writer exists, and views must be able to read the data without attaching to
 * a segment.  The directory has as many places as there can be leader apply
 * workers, so a receiver always finds one.  Each place takes about 20 kB.
 *
 * Locking: the directory's lock protects in_use, subid, replay_final_lsn,
 * lack_at, lack_ms and generation.  A receiver that starts a writer counts all
 * writers with the lock held, so that receivers together do not start too
 * many.  Only the receiver writes the gate (is_open).
 *
 * If a writer dies, its exit callback sets PAPPLY_WRITER_EXITED.  If the
 * receiver dies, its exit callback closes the gate and waits for the writers
 * to exit.  If a process is killed by SIGKILL, the postmaster reinitializes
 * shared memory and with it this directory.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "commands/trigger.h"
#include "miscadmin.h"
#include "replication/logicallauncher.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/memutils.h"

#include "clock.h"
#include "pool.h"

/*
 * Bounds of the time for which no pool is started after dynamic shared memory
 * ran out.  Meanwhile the transaction that needed the memory has to be
 * received and applied, which can take long.
 */
#define MIN_LACK_MS 60000
#define MAX_LACK_MS (24 * 3600 * 1000)

typedef struct PoolDirectory
{
	LWLock		lock;
	int			length;
	PapplyPool	pools[FLEXIBLE_ARRAY_MEMBER];
} PoolDirectory;

static PoolDirectory *directory = NULL;

PapplyPool *papply_pool = NULL;
int			papply_pool_waiter = PAPPLY_WAITER_RECEIVER;

static Size
directory_size(void)
{
	return add_size(offsetof(PoolDirectory, pools),
					mul_size(max_logical_replication_workers, sizeof(PapplyPool)));
}

void
papply_pool_request_shmem(void)
{
	RequestAddinShmemSpace(directory_size());
	RequestNamedLWLockTranche(PAPPLY_NAME, 1);
}

void
papply_pool_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	directory = ShmemInitStruct(PAPPLY_NAME, directory_size(), &found);
	if (!found)
	{
		int			tranche = GetNamedLWLockTranche(PAPPLY_NAME)->lock.tranche;

		memset(directory, 0, directory_size());
		LWLockInitialize(&directory->lock, tranche);
		directory->length = max_logical_replication_workers;
		for (int i = 0; i < directory->length; i++)
		{
			LWLockInitialize(&directory->pools[i].registry_lock, tranche);
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Initialize all fields, except those that outlive a pool. */
static void
reset_pool(PapplyPool *pool)
{
	pg_atomic_init_u32(&pool->configured_writers, 0);
	pg_atomic_init_u64(&pool->wanted_writers, 0);
	pg_atomic_init_u64(&pool->exited_writer, 0);
	pg_atomic_init_u64(&pool->published_seqno, 0);
	pg_atomic_init_u64(&pool->write_position, 0);
	pg_atomic_init_u64(&pool->announced_seqno, PAPPLY_NO_SEQNO);
	pg_atomic_init_u32(&pool->announced_in_vain, 0);
	pg_atomic_init_u64(&pool->next_claim, 1);
	pg_atomic_init_u64(&pool->ahead_position, 0);
	pg_atomic_init_u64(&pool->present_writers, 0);
	pg_atomic_init_u64(&pool->idle_writers, 0);
	pg_atomic_init_u64(&pool->ahead_writers, 0);
	pg_atomic_init_u32(&pool->slow_points, 0);
	pg_atomic_init_u32(&pool->slow_read_us, 0);
	pg_atomic_init_u32(&pool->reading_ranges, 0);
	pg_atomic_init_u32(&pool->quiet_ranges, 0);
	pg_atomic_init_u64(&pool->slow_writers, 0);
	pg_atomic_init_u32(&pool->awake_limit, 1);
	pg_atomic_init_u64(&pool->early_writers, 0);
	pg_atomic_init_u64(&pool->alone_seqno, PAPPLY_NO_SEQNO);
	pg_atomic_init_u32(&pool->has_session_locks, false);
	pg_atomic_init_u32(&pool->has_session_settings, false);
	pg_atomic_init_u32(&pool->uses_sequence_cache, false);
	for (int i = 0; i < PAPPLY_MAX_EARLY; i++)
	{
		pg_atomic_init_u32(&pool->early[i].state, PAPPLY_EARLY_NONE);
		pg_atomic_init_u64(&pool->early[i].bytes, 0);
	}
	pg_atomic_init_u64(&pool->data_waiter, 0);
	pg_atomic_init_u64(&pool->space_waiter, 0);
	pg_atomic_init_u64(&pool->wanted_flush_lsn, InvalidXLogRecPtr);
	pg_atomic_init_u32(&pool->flusher, 0);
	pg_atomic_init_u32(&pool->holds_flush, false);
	pg_atomic_init_u64(&pool->committed_seqno, 0);
	pg_atomic_init_u32(&pool->replication_role, 0);
	pg_atomic_init_u64(&pool->retreat_seqno, PAPPLY_NO_SEQNO);
	for (int i = 0; i < PAPPLY_WAITERS; i++)
		pg_atomic_init_u64(&pool->waiting_for[i], 0);
	memset(&pool->gain, 0, sizeof(pool->gain));
	memset(pool->writers, 0, sizeof(pool->writers));
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		pg_atomic_init_u64(&pool->writers[i].read_position, 0);
		pg_atomic_init_u64(&pool->writers[i].applied_first, PAPPLY_NO_SEQNO);
		pg_atomic_init_u64(&pool->writers[i].recalled_first, PAPPLY_NO_SEQNO);
	}
	pool->registry = InvalidDsaPointer;
	pool->registry_length = 0;
	pool->registry_capacity = 0;
	pool->registry_last_version = 0;
}

/*
 * Return a free place, or NULL.  Prefer the one that the subscription had
 * before, because it may hold the transaction that needs a native replay.
 */
static PapplyPool *
find_place(Oid subid)
{
	PapplyPool *place = NULL;

	for (int i = 0; i < directory->length; i++)
	{
		PapplyPool *pool = &directory->pools[i];

		if (pool->in_use)
			continue;
		if (pool->subid == subid)
			return pool;
		if (place == NULL || (place->subid != InvalidOid && pool->subid == InvalidOid))
			place = pool;
	}
	return place;
}

bool
papply_pool_acquire(Oid dbid, Oid subid, Oid userid, PapplyOriginId origin)
{
	PapplyPool *pool;

	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	pool = find_place(subid);
	if (pool == NULL)
	{
		LWLockRelease(&directory->lock);
		return false;
	}
	if (pool->subid != subid)
	{
		pool->replay_final_lsn = InvalidXLogRecPtr;
		pool->lack_at = 0;
		pool->lack_ms = 0;
	}
	reset_pool(pool);
	pool->subid = subid;
	pool->generation++;
	pool->dbid = dbid;
	pool->userid = userid;
	pool->origin = origin;
	pool->receiver_proc = MyProc;
	pool->receiver_pid = MyProcPid;
	pool->is_open = true;
	pool->in_use = true;
	LWLockRelease(&directory->lock);

	papply_pool = pool;
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	return true;
}

void
papply_pool_create_private(Oid dbid, Oid subid, Oid userid)
{
	PapplyPool *pool = MemoryContextAllocZero(TopMemoryContext, sizeof(PapplyPool));

	LWLockInitialize(&pool->registry_lock, directory->lock.tranche);
	reset_pool(pool);
	pg_atomic_write_u32(&pool->replication_role, SESSION_REPLICATION_ROLE_REPLICA);
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
	papply_pool->is_open = false;
	pg_memory_barrier();		/* before any signal to writers */
}

void
papply_pool_release(void)
{
	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	papply_pool->in_use = false;
	papply_pool->receiver_proc = NULL;
	LWLockRelease(&directory->lock);
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

static int
count_all_writers(void)
{
	int			count = 0;

	for (int i = 0; i < directory->length; i++)
		if (directory->pools[i].in_use)
			count += count_writers(&directory->pools[i]);
	return count;
}

bool
papply_pool_has_room(int max_writers)
{
	bool		has_room;

	LWLockAcquire(&directory->lock, LW_SHARED);
	has_room = count_all_writers() < max_writers;
	LWLockRelease(&directory->lock);
	return has_room;
}

bool
papply_pool_claim_writer(int writer, int max_writers)
{
	PapplyWriterSlot *slot = &papply_pool->writers[writer];
	bool		may_start;

	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	may_start = occupies_slot(slot) || count_all_writers() < max_writers;
	if (may_start)
		slot->state = PAPPLY_WRITER_STARTING;
	LWLockRelease(&directory->lock);
	return may_start;
}

bool
papply_pool_has_surplus(int max_writers)
{
	int			ours = count_writers(papply_pool);
	bool		has_surplus;

	LWLockAcquire(&directory->lock, LW_SHARED);
	has_surplus = ours > 1 && count_all_writers() > max_writers;
	for (int i = 0; i < directory->length && has_surplus; i++)
	{
		const PapplyPool *pool = &directory->pools[i];
		int			theirs = pool->in_use ? count_writers(pool) : 0;

		if (theirs > ours || (theirs == ours && pool < papply_pool))
			has_surplus = false;
	}
	LWLockRelease(&directory->lock);
	return has_surplus;
}

Datum
papply_pool_writer_argument(int writer)
{
	int			place = papply_pool - directory->pools;

	return Int32GetDatum(place * PAPPLY_MAX_WRITERS + writer);
}

bool
papply_pool_attach_writer(Datum argument, uint32 generation)
{
	int			place = DatumGetInt32(argument) / PAPPLY_MAX_WRITERS;
	int			writer = DatumGetInt32(argument) % PAPPLY_MAX_WRITERS;
	PapplyPool *pool = &directory->pools[place];
	PapplyWriterSlot *slot = &pool->writers[writer];
	bool		mine;

	LWLockAcquire(&directory->lock, LW_SHARED);
	mine = pool->in_use && pool->is_open && pool->generation == generation;
	if (mine)
	{
		slot->pid = MyProcPid;
		slot->proc = MyProc;
	}
	LWLockRelease(&directory->lock);

	if (mine)
	{
		papply_pool = pool;
		papply_pool_waiter = writer;
	}
	return mine;
}

void
papply_pool_set_replay(XLogRecPtr final_lsn)
{
	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	papply_pool->replay_final_lsn = final_lsn;
	LWLockRelease(&directory->lock);
}

/*
 * Return the place that the subscription has or last had, or NULL.  The caller
 * holds the directory's lock.
 */
static const PapplyPool *
place_of(Oid subid)
{
	const PapplyPool *place = NULL;

	for (int i = 0; i < directory->length; i++)
		if (directory->pools[i].subid == subid)
			place = &directory->pools[i];
	return place;
}

XLogRecPtr
papply_pool_get_replay(Oid subid)
{
	const PapplyPool *place;
	XLogRecPtr	final_lsn;

	LWLockAcquire(&directory->lock, LW_SHARED);
	place = place_of(subid);
	final_lsn = place != NULL ? place->replay_final_lsn : InvalidXLogRecPtr;
	LWLockRelease(&directory->lock);
	return final_lsn;
}

void
papply_pool_note_lack(void)
{
	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	papply_pool->lack_at = papply_clock_now();
	papply_pool->lack_ms = Max(MIN_LACK_MS, Min(MAX_LACK_MS, 2 * papply_pool->lack_ms));
	LWLockRelease(&directory->lock);
}

bool
papply_pool_has_lacked(Oid subid)
{
	int64		now = papply_clock_now();
	const PapplyPool *place;
	bool		has_lacked;

	LWLockAcquire(&directory->lock, LW_SHARED);
	place = place_of(subid);
	has_lacked = place != NULL && place->lack_at != 0 &&
		!papply_clock_has_passed(place->lack_at, now, place->lack_ms);
	LWLockRelease(&directory->lock);
	return has_lacked;
}

void
papply_pool_set_state(PapplyWriterState state)
{
	papply_pool->writers[papply_pool_waiter].state = state;
}

bool
papply_pool_peek_here(int *n, PapplyPool *copy)
{
	while (*n < directory->length)
	{
		LWLockAcquire(&directory->lock, LW_SHARED);
		memcpy(copy, &directory->pools[(*n)++], sizeof(PapplyPool));
		LWLockRelease(&directory->lock);
		if (copy->in_use && copy->dbid == MyDatabaseId)
			return true;
	}
	return false;
}

PapplyPool *
papply_pool_next_other(int *n)
{
	while (*n < directory->length)
	{
		PapplyPool *pool = &directory->pools[(*n)++];

		if (pool->in_use && pool != papply_pool)
			return pool;
	}
	return NULL;
}

void
papply_pool_cancel(void)
{
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

void
papply_pool_reset_gain(Oid subid)
{
	LWLockAcquire(&directory->lock, LW_SHARED);
	for (int n = 0; n < directory->length; n++)
		if (directory->pools[n].in_use && directory->pools[n].subid == subid)
			directory->pools[n].gain.must_reset = true;
	LWLockRelease(&directory->lock);
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
	PGPROC	   *proc = (waiter == PAPPLY_WAITER_RECEIVER) ?
	papply_pool->receiver_proc : papply_pool->writers[waiter].proc;

	if (proc != NULL)
		SetLatch(&proc->procLatch);
}
