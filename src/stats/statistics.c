/*-------------------------------------------------------------------------
 * statistics.c
 *	  Statistics and state of subscriptions, for the views.
 *
 * Runs in receivers and writers, which count, in backends that read the views,
 * and in the postmaster when it starts and exits.
 *
 * Each process of a subscription has a row of counters of its own.  Writer n
 * has row n, and the receiver has the last one.  A row outlives its process,
 * and the next process with that number continues it.  So the sum of all rows
 * covers the time since the slot was taken (slots.c).  Counting is an addition to
 * memory that no other process writes, with the exception below.  A single
 * set of counters, atomic or under a lock, would move its cache lines between
 * writers with every transaction.
 *
 * A reset does not change the rows.  It stores their sum, and the views return
 * the difference.
 *
 * An apply worker that waits for a lock cannot count, so those that read its
 * counters count its wait until then.  It counts the rest when the wait has ended,
 * before it counts other waits, so only one process writes these counters at a time.
 *
 * Locking: the lock of the slots protects base and stats_reset.  The error, the
 * failed transaction, and who counts a wait of the apply worker, are protected by
 * a spinlock, because an LWLock may be held when they are stored.  Rows and
 * progress are read without a lock.
 *
 * If a process dies, the counts that it has not added are lost.  If a process
 * is killed by SIGKILL, the postmaster reinitializes shared memory, and
 * everything here is lost.  A restart of the server keeps it (saved.c): the
 * sums go to the receiver's row.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "replication/logicallauncher.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "utils/timestamp.h"

#include "hot_keys.h"
#include "message.h"
#include "pool.h"
#include "slots.h"
#include "statistics.h"

/* Rates are computed over this time, or since the first sample. */
#define RATE_US (6 * USECS_PER_SEC)

/* Written by processes without a slot. */
typedef struct Unused
{
	PapplyProgress progress;
	uint64		counts[PAPPLY_COUNTERS];
} Unused;

static Unused unused;

uint64	   *papply_statistics_counts = unused.counts;
PapplyProgress *papply_statistics_progress = &unused.progress;

static uint64
sum_of(const PapplySharedStatistics *shared, PapplyCounter counter)
{
	uint64		sum = 0;

	for (int i = 0; i < PAPPLY_WAITERS; i++)
		sum += shared->rows[i].counts[counter];
	return sum;
}

/*** processes that count ***/

void
papply_statistics_attach(void)
{
	PapplySharedStatistics *shared;

	if (papply_subscription_slot == NULL)
		return;
	shared = &papply_subscription_slot->data.statistics;
	papply_statistics_counts = shared->rows[papply_pool_waiter].counts;
	if (papply_pool_waiter == PAPPLY_WAITER_RECEIVER)
		papply_statistics_progress = &shared->progress;
}

void
papply_statistics_detach(void)
{
	papply_statistics_progress->state = PAPPLY_APPLY_NONE;
	papply_statistics_progress->reason = PAPPLY_REASON_NONE;
	papply_statistics_progress->leader.is_applying = false;
	papply_statistics_counts = unused.counts;
	papply_statistics_progress = &unused.progress;
}

void
papply_statistics_note_error(const char *message)
{
	PapplyLastError error = {.at = GetCurrentTimestamp()};

	papply_statistics_count(PAPPLY_COUNT_ERRORS, 1);
	if (papply_subscription_slot == NULL || message == NULL)
		return;
	papply_text_copy(error.message, message, sizeof(error.message));

	SpinLockAcquire(&papply_subscription_slot->error_mutex);
	papply_subscription_slot->data.statistics.last_error = error;
	SpinLockRelease(&papply_subscription_slot->error_mutex);
}

/* Count it from where it has been counted to.  The caller holds error_mutex. */
static void
count_wait(PapplySharedStatistics *shared, TimestampTz began_at, TimestampTz until)
{
	PapplyLeaderWait *wait = &shared->leader_wait;
	uint64	   *counts = shared->rows[PAPPLY_WAITER_RECEIVER].counts;
	TimestampTz from = wait->began_at == began_at ? wait->counted_until : began_at;

	until = Max(from, until);	/* the clock may have been set back */
	counts[PAPPLY_COUNT_WAITS_LOCK] += until / USECS_PER_SEC - from / USECS_PER_SEC;
	counts[PAPPLY_COUNT_LOCK_US] += until - from;
	wait->began_at = began_at;
	wait->counted_until = until;
}

void
papply_statistics_end_wait(TimestampTz began_at, TimestampTz ended_at)
{
	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	if (papply_subscription_slot == NULL)
		return;
	SpinLockAcquire(&papply_subscription_slot->error_mutex);
	count_wait(&papply_subscription_slot->data.statistics, began_at, ended_at);
	papply_subscription_slot->data.statistics.leader_wait.counted_until = DT_NOEND;
	SpinLockRelease(&papply_subscription_slot->error_mutex);
}

/*
 * Only the receiver calls this, so it can read the old values without the
 * mutex.
 */
void
papply_statistics_note_failed(const PapplyFailedTransaction *failed)
{
	PapplyFailedTransaction next = *failed;
	PapplyFailedTransaction *last;

	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	if (papply_subscription_slot == NULL)
		return;
	last = &papply_subscription_slot->data.statistics.failed;
	if (next.final_lsn == last->final_lsn)
	{
		next.first_failed_at = last->first_failed_at;
		next.attempts = last->attempts + 1;
	}
	SpinLockAcquire(&papply_subscription_slot->error_mutex);
	*last = next;
	SpinLockRelease(&papply_subscription_slot->error_mutex);
}

bool
papply_statistics_is_failed(TransactionId remote_xid)
{
	const PapplyFailedTransaction *failed;

	if (papply_subscription_slot == NULL)
		return false;
	failed = &papply_subscription_slot->data.statistics.failed;
	return failed->remote_xid == remote_xid && failed->changes > PAPPLY_MANY_CHANGES;
}

/*** readers ***/

bool
papply_statistics_has_failed(const PapplyStatistics *statistics)
{
	XLogRecPtr	failing_lsn = statistics->progress.failure.final_lsn;

	return !XLogRecPtrIsInvalid(failing_lsn) && failing_lsn == statistics->failed.final_lsn;
}

TimestampTz
papply_statistics_behind_since(const PapplyProgress *progress, bool is_running)
{
	if (progress->failure.kind != PAPPLY_FAILURE_NONE)
		return progress->failure.behind_since;
	if (progress->oldest_commit_time != 0 || is_running)
		return progress->oldest_commit_time;
	return progress->current_at;
}

bool
papply_statistics_rate_base(const PapplyProgress *progress, int64 now, PapplySample *base)
{
	uint64		taken = progress->samples_taken;
	int64		newer_at = now;

	for (uint64 i = 1; i < PAPPLY_SAMPLES && i <= taken; i++)
	{
		int64		start;

		*base = progress->samples[(taken - i) % PAPPLY_SAMPLES];
		start = Max(base->taken_at, newer_at - PAPPLY_SAMPLE_MS * INT64CONST(1000));
		newer_at = base->taken_at;
		if (now - base->taken_at <= RATE_US)
			continue;

		/*
		 * There was nothing to do until shortly before the next sample, or
		 * there would be one in between.
		 */
		base->oldest_commit_time += start - base->taken_at;
		base->taken_at = start;
		break;
	}
	return taken > 0;
}

uint64
papply_statistics_transactions(void)
{
	return papply_subscription_slot == NULL ? 0 :
		sum_of(&papply_subscription_slot->data.statistics, PAPPLY_COUNT_TRANSACTIONS);
}

/*
 * If the apply worker waits for a lock in a transaction, count that until now.  The caller
 * holds the lock of the slots, so the apply worker does not exit meanwhile.
 */
static void
count_present_wait(PapplySubscriptionSlot *slot)
{
	PGPROC	   *proc = slot->receiver_pid == 0 ? NULL : BackendPidGetProc(slot->receiver_pid);
	TimestampTz now;
	TimestampTz began_at;

	if (proc == NULL || !slot->data.statistics.progress.leader.is_applying)
		return;
	now = GetCurrentTimestamp();
	SpinLockAcquire(&slot->error_mutex);
	began_at = pg_atomic_read_u64(&proc->waitStart);
	if (began_at != 0 && papply_compat_proc_waits_for_lock(proc))
		count_wait(&slot->data.statistics, began_at, now);
	SpinLockRelease(&slot->error_mutex);
}

/* The caller holds the lock of the slots. */
static void
copy_from(PapplySubscriptionSlot *slot, PapplyStatistics *copy)
{
	const PapplySharedStatistics *shared = &slot->data.statistics;

	count_present_wait(slot);
	copy->subid = slot->subid;
	copy->receiver_pid = slot->receiver_pid;
	copy->stats_reset = shared->stats_reset;
	for (int i = 0; i < PAPPLY_COUNTERS; i++)
		copy->counts[i] = sum_of(shared, i) - shared->base[i];
	copy->total_transactions = copy->counts[PAPPLY_COUNT_TRANSACTIONS] +
		shared->base[PAPPLY_COUNT_TRANSACTIONS];
	memcpy(&copy->progress, &shared->progress, sizeof(PapplyProgress));
	SpinLockAcquire(&slot->error_mutex);
	copy->last_error = shared->last_error;
	copy->failed = shared->failed;
	SpinLockRelease(&slot->error_mutex);
}

bool
papply_statistics_get(Oid subid, PapplyStatistics *copy)
{
	PapplySubscriptionSlot *slot;

	papply_slots_lock(LW_SHARED);
	slot = papply_slots_find(subid);
	if (slot != NULL)
		copy_from(slot, copy);
	papply_slots_unlock();
	return slot != NULL;
}

static void
reset_slot(PapplySubscriptionSlot *slot, TimestampTz now)
{
	PapplySharedStatistics *shared = &slot->data.statistics;

	count_present_wait(slot);
	for (int i = 0; i < PAPPLY_COUNTERS; i++)
		shared->base[i] = sum_of(shared, i);
	shared->stats_reset = now;
	SpinLockAcquire(&slot->error_mutex);
	memset(&shared->last_error, 0, sizeof(shared->last_error));
	SpinLockRelease(&slot->error_mutex);
	slot->pool.speedup.must_reset = true;
	papply_hot_keys_reset(slot);
}

void
papply_statistics_reset(Oid subid)
{
	TimestampTz now = GetCurrentTimestamp();
	PapplySubscriptionSlot *slot;

	papply_slots_lock(LW_EXCLUSIVE);
	for (int i = 0; (slot = papply_slots_get(i)) != NULL; i++)
		if (slot->dbid == MyDatabaseId && (!OidIsValid(subid) || slot->subid == subid))
			reset_slot(slot, now);
	papply_slots_unlock();
}

/*** restart of the server: no other process runs ***/

static void
load_slot(PapplySharedStatistics *shared, const PapplySavedSubscription *saved)
{
	memcpy(shared->rows[PAPPLY_WAITER_RECEIVER].counts, saved->counts, sizeof(saved->counts));
	shared->stats_reset = saved->stats_reset;
	shared->last_error = saved->last_error;
	shared->failed = saved->failed;
	shared->progress.failure = saved->failure;
	shared->progress.current_at = saved->behind_since;
}

void
papply_statistics_load(const PapplySavedSubscription *saved, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		PapplySubscriptionSlot *slot = papply_slots_restore(saved[i].dbid, saved[i].subid);

		if (slot == NULL)
			return;
		load_slot(&slot->data.statistics, &saved[i]);
	}
}

static void
save_slot(PapplySavedSubscription *saved, const PapplySubscriptionSlot *slot)
{
	const PapplySharedStatistics *shared = &slot->data.statistics;

	saved->subid = slot->subid;
	saved->dbid = slot->dbid;
	for (int counter = 0; counter < PAPPLY_COUNTERS; counter++)
		saved->counts[counter] = sum_of(shared, counter) - shared->base[counter];
	saved->stats_reset = shared->stats_reset;
	saved->last_error = shared->last_error;
	saved->failure = shared->progress.failure;
	saved->failed = shared->failed;
	saved->behind_since = papply_statistics_behind_since(&shared->progress, false);
}

PapplySavedSubscription *
papply_statistics_save(uint32 *n)
{
	int			slots = Max(max_logical_replication_workers, 1);
	PapplySavedSubscription *saved = palloc0(slots * sizeof(PapplySavedSubscription));
	PapplySubscriptionSlot *slot;

	*n = 0;
	for (int i = 0; (slot = papply_slots_get(i)) != NULL; i++)
		if (OidIsValid(slot->subid))
			save_slot(&saved[(*n)++], slot);
	return saved;
}

const char *
papply_statistics_reason_text(PapplyApplyReason reason)
{
	static const char *const reasons[] = {
		[PAPPLY_REASON_NONE] = NULL,
		[PAPPLY_REASON_STARTING] = "writers are about to be started",
		[PAPPLY_REASON_NO_EXTENSION] = "the extension is not installed in this database",
		[PAPPLY_REASON_ONE_WRITER] = "one writer is configured",
		[PAPPLY_REASON_RETAIN_DEAD_TUPLES] = "the subscription has retain_dead_tuples",
		[PAPPLY_REASON_ROLE] = "a function has set session_replication_role for the session",
		[PAPPLY_REASON_STREAMING] = "a streamed transaction has begun without writers",
		[PAPPLY_REASON_NO_QUEUE] = "there is no shared memory for the queue",
		[PAPPLY_REASON_NO_WRITERS] = "no writers could be started",
		[PAPPLY_REASON_FEW_WRITERS] = "not all writers could be started"
	};

	return reasons[reason];
}
