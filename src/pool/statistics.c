/*-------------------------------------------------------------------------
 * statistics.c
 *	  Statistics and state of subscriptions, for the views.
 *
 * Runs in the postmaster (sizing), in receivers and writers, which count, and
 * in backends that read the views.
 *
 * Each process of a subscription has a row of counters of its own.  Writer n
 * has row n, and the receiver has the last one.  A row outlives its process,
 * and the next process with that number continues it.  So the sum of all rows
 * covers the time since the place was taken.  No other process writes a row,
 * so counting is an addition to memory that no other process writes.  A single
 * set of counters, atomic or under a lock, would move its cache lines between
 * writers with every transaction.
 *
 * A reset does not change the rows.  It stores their sum, and the views return
 * the difference.
 *
 * There are as many places as there can be leader apply workers, so a worker
 * always finds a place.  Each place takes about 20 kB.
 *
 * Locking: the directory's lock protects subid, dbid, receiver_pid, detached,
 * base and stats_reset.  The error and the failed transaction are protected by
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

#include "access/xact.h"
#include "miscadmin.h"
#include "replication/logicallauncher.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "statistics.h"
#include "text.h"

#define AREA_NAME PAPPLY_NAME " statistics"

typedef struct CounterRow
{
	char		pad[PG_CACHE_LINE_SIZE];	/* keep rows in separate cache
											 * lines */
	uint64		counts[PAPPLY_COUNTERS];
} CounterRow;

typedef struct Place
{
	/* protected by the directory's lock */
	Oid			subid;			/* InvalidOid if never used */
	Oid			dbid;
	pid_t		receiver_pid;	/* 0: another subscription may take the place */
	uint64		detached;		/* order in which places became free */
	uint64		base[PAPPLY_COUNTERS];	/* sums of the rows at the last reset */
	TimestampTz stats_reset;

	/* protected by mutex */
	slock_t		mutex;
	TimestampTz last_error_time;
	char		last_error[PAPPLY_ERROR_LENGTH];
	PapplyFailedTransaction failed;

	/* written by the receiver alone, read without a lock */
	PapplyProgress progress;

	/* each row written by its process alone, read without a lock */
	CounterRow	rows[PAPPLY_WAITERS];
} Place;

typedef struct Directory
{
	LWLock		lock;
	int			length;
	uint64		detached;		/* protected by lock */
	Place		places[FLEXIBLE_ARRAY_MEMBER];
} Directory;

static Directory *directory = NULL;
static Place *my_place = NULL;

/* Written by processes without a place. */
static PapplyProgress no_progress;
static uint64 no_counts[PAPPLY_COUNTERS];

uint64	   *papply_statistics_counts = no_counts;
PapplyProgress *papply_statistics_progress = &no_progress;

static Size
directory_size(void)
{
	return add_size(offsetof(Directory, places),
					mul_size(max_logical_replication_workers, sizeof(Place)));
}

void
papply_statistics_request_shmem(void)
{
	RequestAddinShmemSpace(directory_size());
	RequestNamedLWLockTranche(AREA_NAME, 1);
}

static uint64
sum_of(const Place *place, PapplyCounter counter)
{
	uint64		sum = 0;

	for (int i = 0; i < PAPPLY_WAITERS; i++)
		sum += place->rows[i].counts[counter];
	return sum;
}

void
papply_statistics_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	directory = ShmemInitStruct(AREA_NAME, directory_size(), &found);
	if (!found)
	{
		memset(directory, 0, directory_size());
		LWLockInitialize(&directory->lock,
						 GetNamedLWLockTranche(AREA_NAME)->lock.tranche);
		directory->length = max_logical_replication_workers;
		for (int i = 0; i < directory->length; i++)
			SpinLockInit(&directory->places[i].mutex);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*** processes that count ***/

/*
 * Return the place of a subscription, or NULL.  The caller holds the
 * directory's lock.
 */
static Place *
find_place(Oid subid)
{
	for (int i = 0; i < directory->length; i++)
		if (directory->places[i].subid == subid)
			return &directory->places[i];
	return NULL;
}

/*
 * Return the subscriptions that have a place but were dropped.  The caller
 * must not hold the directory's lock.
 */
static List *
dropped_subscriptions(void)
{
	MemoryContext old_context = CurrentMemoryContext;
	List	   *dropped = NIL;

	StartTransactionCommand();
	MemoryContextSwitchTo(old_context);
	for (int i = 0; i < directory->length; i++)
	{
		Oid			subid = directory->places[i].subid;

		if (OidIsValid(subid) && !SearchSysCacheExists1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid)))
			dropped = lappend_oid(dropped, subid);
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
	return dropped;
}

/*
 * Return a place for another subscription: one that was never used or whose
 * subscription was dropped, or else the one that has been free for the longest
 * time; NULL if none is free.  The caller holds the directory's lock.
 */
static Place *
find_free_place(const List *dropped)
{
	Place	   *oldest = NULL;
	uint64		since = 0;

	for (int i = 0; i < directory->length; i++)
	{
		Place	   *place = &directory->places[i];
		uint64		detached = list_member_oid(dropped, place->subid) ? 0 : place->detached;

		if (place->receiver_pid != 0 || (oldest != NULL && detached >= since))
			continue;
		oldest = place;
		since = detached;
	}
	return oldest;
}

/* Initialize the place for a subscription. */
static void
clear_place(Place *place, Oid subid)
{
	place->subid = subid;
	memset(place->base, 0, sizeof(place->base));
	memset(place->rows, 0, sizeof(place->rows));
	memset(&place->progress, 0, sizeof(place->progress));
	place->stats_reset = place->progress.current_at = GetCurrentTimestamp();
	place->last_error_time = 0;
	place->last_error[0] = '\0';
	memset(&place->failed, 0, sizeof(place->failed));
}

static void
attach(Place *place, int row)
{
	my_place = place;
	papply_statistics_counts = place->rows[row].counts;
}

void
papply_statistics_attach_receiver(Oid dbid, Oid subid)
{
	List	   *dropped = dropped_subscriptions();
	Place	   *place;

	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	place = find_place(subid);
	if (place == NULL)
	{
		place = find_free_place(dropped);
		if (place != NULL)
			clear_place(place, subid);
	}
	if (place != NULL)
	{
		place->dbid = dbid;
		place->receiver_pid = MyProcPid;
	}
	LWLockRelease(&directory->lock);
	list_free(dropped);

	if (place != NULL)
	{
		attach(place, PAPPLY_WAITER_RECEIVER);
		papply_statistics_progress = &place->progress;
	}
}

void
papply_statistics_detach_receiver(void)
{
	if (my_place == NULL)
		return;
	my_place->progress.state = PAPPLY_APPLY_NONE;
	my_place->progress.reason = PAPPLY_REASON_NONE;
	my_place->progress.leader.is_applying = false;
	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	my_place->receiver_pid = 0;
	my_place->detached = ++directory->detached;
	LWLockRelease(&directory->lock);
	my_place = NULL;
	papply_statistics_counts = no_counts;
	papply_statistics_progress = &no_progress;
}

void
papply_statistics_attach_writer(void)
{
	Place	   *place;

	LWLockAcquire(&directory->lock, LW_SHARED);
	place = find_place(papply_pool->subid);
	LWLockRelease(&directory->lock);
	if (place != NULL)
		attach(place, papply_pool_waiter);
}

void
papply_statistics_note_error(const char *message)
{
	char		last_error[PAPPLY_ERROR_LENGTH];
	TimestampTz now = GetCurrentTimestamp();

	papply_statistics_count(PAPPLY_COUNT_ERRORS, 1);
	if (my_place == NULL || message == NULL)
		return;
	papply_text_copy(last_error, message, sizeof(last_error));

	SpinLockAcquire(&my_place->mutex);
	my_place->last_error_time = now;
	strcpy(my_place->last_error, last_error);
	SpinLockRelease(&my_place->mutex);
}

/*
 * Only the receiver calls this, so it can read the old values without the
 * mutex.
 */
void
papply_statistics_note_failed(const PapplyFailedTransaction *failed)
{
	PapplyFailedTransaction next = *failed;

	if (my_place == NULL)
		return;
	if (next.final_lsn == my_place->failed.final_lsn)
	{
		next.first_failed_at = my_place->failed.first_failed_at;
		next.attempts = my_place->failed.attempts + 1;
	}
	SpinLockAcquire(&my_place->mutex);
	my_place->failed = next;
	SpinLockRelease(&my_place->mutex);
}

/*** readers ***/

bool
papply_statistics_has_failed(const PapplyStatistics *statistics)
{
	return statistics->progress.failure.kind == PAPPLY_FAILURE_TRANSACTION &&
		statistics->progress.failure.final_lsn == statistics->failed.final_lsn;
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

uint64
papply_statistics_total(PapplyCounter counter)
{
	return my_place == NULL ? 0 : sum_of(my_place, counter);
}

bool
papply_statistics_peek(int n, PapplyStatistics *copy)
{
	Place	   *place;

	if (n < 0 || n >= directory->length)
		return false;
	place = &directory->places[n];

	LWLockAcquire(&directory->lock, LW_SHARED);
	copy->subid = place->subid;
	copy->dbid = place->dbid;
	copy->receiver_pid = place->receiver_pid;
	copy->stats_reset = place->stats_reset;
	for (int i = 0; i < PAPPLY_COUNTERS; i++)
		copy->counts[i] = sum_of(place, i) - place->base[i];
	copy->total_transactions = copy->counts[PAPPLY_COUNT_TRANSACTIONS] +
		place->base[PAPPLY_COUNT_TRANSACTIONS];
	memcpy(&copy->progress, &place->progress, sizeof(PapplyProgress));
	SpinLockAcquire(&place->mutex);
	copy->last_error_time = place->last_error_time;
	memcpy(copy->last_error, place->last_error, PAPPLY_ERROR_LENGTH);
	copy->failed = place->failed;
	SpinLockRelease(&place->mutex);
	LWLockRelease(&directory->lock);
	return true;
}

void
papply_statistics_reset(Oid subid)
{
	TimestampTz now = GetCurrentTimestamp();
	Place	   *place;

	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	place = find_place(subid);
	if (place != NULL)
	{
		for (int i = 0; i < PAPPLY_COUNTERS; i++)
			place->base[i] = sum_of(place, i);
		place->stats_reset = now;
		SpinLockAcquire(&place->mutex);
		place->last_error_time = 0;
		place->last_error[0] = '\0';
		SpinLockRelease(&place->mutex);
	}
	LWLockRelease(&directory->lock);
}

/*** restart of the server: no other process runs ***/

void
papply_statistics_load(const PapplySavedSubscription *saved, int n)
{
	for (int i = 0; i < Min(n, directory->length); i++)
	{
		Place	   *place = &directory->places[i];

		place->subid = saved[i].subid;
		place->dbid = saved[i].dbid;
		place->detached = directory->detached = 1;
		memcpy(place->rows[PAPPLY_WAITER_RECEIVER].counts, saved[i].counts,
			   sizeof(saved[i].counts));
		place->stats_reset = saved[i].stats_reset;
		place->last_error_time = saved[i].last_error_time;
		memcpy(place->last_error, saved[i].last_error, PAPPLY_ERROR_LENGTH);
		place->progress.failure = saved[i].failure;
		place->failed = saved[i].failed;
		place->progress.current_at = saved[i].behind_since;
	}
}

static void
save_place(PapplySavedSubscription *saved, const Place *place)
{
	saved->subid = place->subid;
	saved->dbid = place->dbid;
	for (int counter = 0; counter < PAPPLY_COUNTERS; counter++)
		saved->counts[counter] = sum_of(place, counter) - place->base[counter];
	saved->stats_reset = place->stats_reset;
	saved->last_error_time = place->last_error_time;
	memcpy(saved->last_error, place->last_error, PAPPLY_ERROR_LENGTH);
	saved->failure = place->progress.failure;
	saved->failed = place->failed;
	saved->behind_since = papply_statistics_behind_since(&place->progress, false);
}

PapplySavedSubscription *
papply_statistics_save(int *n)
{
	PapplySavedSubscription *saved =
	palloc0(Max(directory->length, 1) * sizeof(PapplySavedSubscription));

	*n = 0;
	for (int i = 0; i < directory->length; i++)
		if (OidIsValid(directory->places[i].subid))
			save_place(&saved[(*n)++], &directory->places[i]);
	return saved;
}

const char *
papply_statistics_reason_text(PapplyApplyReason reason)
{
	switch (reason)
	{
		case PAPPLY_REASON_NONE:
			return NULL;
		case PAPPLY_REASON_STARTING:
			return "writers are about to be started";
		case PAPPLY_REASON_NO_EXTENSION:
			return "the extension is not installed in this database";
		case PAPPLY_REASON_ONE_WRITER:
			return "one writer is configured";
		case PAPPLY_REASON_RETAIN_DEAD_TUPLES:
			return "the subscription has retain_dead_tuples";
		case PAPPLY_REASON_ROLE:
			return "a function has set session_replication_role for the session";
		case PAPPLY_REASON_STREAMING:
			return "a streamed transaction has begun without writers";
		case PAPPLY_REASON_NO_QUEUE:
			return "there is no shared memory for the queue";
		case PAPPLY_REASON_NO_WRITERS:
			return "no writers could be started";
		case PAPPLY_REASON_FEW_WRITERS:
			return "not all writers could be started";
	}
	return NULL;
}
