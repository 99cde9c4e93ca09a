/*-------------------------------------------------------------------------
 * table_statistics.c
 *	  Counters and descriptions of subscribed tables, in shared memory.
 *
 * Runs in the postmaster (sizing), in the receiver, which describes a table
 * when it looks the table up, in writers, which add their changes at the end
 * of a local transaction, and in backends that read the views.
 *
 * There is a fixed number of places for all subscriptions of the server.  A
 * table gets a place at its first change in a pool.  It keeps the place until
 * the table or its subscription is dropped and another table needs the place.
 * The changes of a table without a place are applied as usual, but not
 * counted.
 *
 * The places are a hash table with open addressing.  A table has the first
 * place that was free, beginning with the one that its OIDs hash to.  A place
 * can get another owner but never becomes empty again, so a search can stop at
 * an empty one.
 *
 * Locking: the lock protects the owners of the places and the descriptions.
 * The counters are atomic.  A writer remembers the place of a table and adds
 * to the counters without the lock.  If the place gets another owner at that
 * moment, because the table was dropped, the new owner starts with counters
 * that are slightly too high.  Readers may see the counters of a row as of
 * slightly different moments.
 *
 * If a process dies, the counts that it has not added are lost.  A restart of
 * the server keeps the places (saved.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/syscache.h"

#include "clock.h"
#include "table_statistics.h"

/* A place has 350 bytes. */
#define PLACES 1024

/* Interval between searches for a free place when there was none. */
#define FULL_MS 60000

typedef struct TablePlace
{
	/* protected by the lock */
	Oid			dbid;
	Oid			subid;			/* InvalidOid if never used */
	Oid			relid;
	PapplyTableDescription description;
	PapplyConflict last_conflict;

	/* atomic, because writers add to them concurrently */
	pg_atomic_uint64 counters[PAPPLY_TABLE_COUNTERS];
} TablePlace;

typedef struct TableStatistics
{
	LWLock		lock;
	bool		is_full;		/* the last search for a free place failed */
	pg_atomic_uint32 taken;		/* number of times that a place was given to a
								 * table */
	TablePlace	places[PLACES];
} TableStatistics;

static TableStatistics *statistics = NULL;

/*
 * Time when this process found no free place; 0 if never, or if it has found
 * one since.
 */
static int64 full_since = 0;

#define STATISTICS_NAME PAPPLY_NAME " tables"

void
papply_table_statistics_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(TableStatistics));
	RequestNamedLWLockTranche(STATISTICS_NAME, 1);
}

static void
reset_counters(TablePlace *place)
{
	for (int i = 0; i < PAPPLY_TABLE_COUNTERS; i++)
		pg_atomic_write_u64(&place->counters[i], 0);
	memset(&place->last_conflict, 0, sizeof(place->last_conflict));
}

void
papply_table_statistics_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	statistics = ShmemInitStruct(STATISTICS_NAME, sizeof(TableStatistics), &found);
	if (!found)
	{
		memset(statistics, 0, sizeof(TableStatistics));
		LWLockInitialize(&statistics->lock,
						 GetNamedLWLockTranche(STATISTICS_NAME)->lock.tranche);
		pg_atomic_init_u32(&statistics->taken, 1);
		for (int i = 0; i < PLACES; i++)
			for (int j = 0; j < PAPPLY_TABLE_COUNTERS; j++)
				pg_atomic_init_u64(&statistics->places[i].counters[j], 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Return the place that the search for a table visits after n others. */
static TablePlace *
nth_place(Oid subid, Oid relid, int n)
{
	uint32		hash = hash_combine(murmurhash32(subid), murmurhash32(relid));

	return &statistics->places[(hash + n) % PLACES];
}

/* Return the place of a table, or NULL.  The caller holds the lock. */
static TablePlace *
find_place(Oid subid, Oid relid)
{
	for (int i = 0; i < PLACES; i++)
	{
		TablePlace *place = nth_place(subid, relid, i);

		if (place->subid == subid && place->relid == relid)
			return place;
		if (!OidIsValid(place->subid))
			break;
	}
	return NULL;
}

/*
 * Was the subscription or the table dropped?  A table of another database
 * cannot be looked up here.
 */
static bool
is_gone(const TablePlace *place)
{
	return !SearchSysCacheExists1(SUBSCRIPTIONOID, ObjectIdGetDatum(place->subid)) ||
		(place->dbid == MyDatabaseId &&
		 !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(place->relid)));
}

bool
papply_table_statistics_may_have_place(void)
{
	return !papply_clock_is_within(full_since, FULL_MS);
}

/* Return the first place that was never used, or NULL. */
static TablePlace *
unused_place(Oid subid, Oid relid)
{
	for (int i = 0; i < PLACES; i++)
	{
		TablePlace *place = nth_place(subid, relid, i);

		if (!OidIsValid(place->subid))
			return place;
	}
	return NULL;
}

/*
 * Return a place that the table may take: one that was never used, or whose
 * table was dropped; NULL if there is none.  Catalog lookups may take a while,
 * so they are done without the lock. *old_subid and *old_relid are set to the
 * owner seen.
 */
static TablePlace *
free_place(Oid subid, Oid relid, Oid *old_subid, Oid *old_relid)
{
	TablePlace *unused = unused_place(subid, relid);

	*old_subid = *old_relid = InvalidOid;
	if (unused != NULL)
		return unused;
	if (!papply_table_statistics_may_have_place())
		return NULL;
	full_since = 0;
	for (int i = 0; i < PLACES; i++)
	{
		TablePlace *place = nth_place(subid, relid, i);

		*old_subid = place->subid;
		*old_relid = place->relid;
		if (is_gone(place))
			return place;
	}
	full_since = papply_clock_now();
	return NULL;
}

static void
take_place(TablePlace *place, Oid subid, Oid relid)
{
	reset_counters(place);
	place->dbid = MyDatabaseId;
	place->relid = relid;
	place->subid = subid;
	statistics->is_full = false;
	pg_atomic_fetch_add_u32(&statistics->taken, 1);
}

/* Set the description of a place.  Returns false if it has another owner. */
static bool
describe_place(TablePlace *place, Oid subid, Oid relid,
			   const PapplyTableDescription *description)
{
	bool		is_ours;

	LWLockAcquire(&statistics->lock, LW_EXCLUSIVE);
	is_ours = place->subid == subid && place->relid == relid;
	if (is_ours)
		place->description = *description;
	LWLockRelease(&statistics->lock);
	return is_ours;
}

bool
papply_table_statistics_describe(Oid subid, Oid relid,
								 const PapplyTableDescription *description)
{
	for (;;)
	{
		Oid			old_subid;
		Oid			old_relid;
		TablePlace *place;
		TablePlace *other = NULL;

		LWLockAcquire(&statistics->lock, LW_SHARED);
		place = find_place(subid, relid);
		LWLockRelease(&statistics->lock);
		if (place != NULL && describe_place(place, subid, relid, description))
			return true;

		other = free_place(subid, relid, &old_subid, &old_relid);
		if (other == NULL)
		{
			statistics->is_full = true;
			return false;
		}

		/* if another receiver was faster, repeat */
		LWLockAcquire(&statistics->lock, LW_EXCLUSIVE);
		if (other->subid == old_subid && other->relid == old_relid)
			take_place(other, subid, relid);
		LWLockRelease(&statistics->lock);
	}
}

/* Like find_place(), but remember the result in *hint. */
static TablePlace *
find_by_hint(Oid subid, Oid relid, PapplyTableHint *hint)
{
	uint32		taken = pg_atomic_read_u32(&statistics->taken);
	TablePlace *place;

	if (hint->taken != taken || hint->relid != relid)
	{
		LWLockAcquire(&statistics->lock, LW_SHARED);
		place = find_place(subid, relid);
		LWLockRelease(&statistics->lock);
		hint->place = place ? place - statistics->places : -1;
		hint->taken = taken;
		hint->relid = relid;
	}
	return hint->place >= 0 ? &statistics->places[hint->place] : NULL;
}

void
papply_table_statistics_add(Oid subid, Oid relid, const uint64 *counts,
							const PapplyConflict *conflict, PapplyTableHint *hint)
{
	TablePlace *place = find_by_hint(subid, relid, hint);

	for (int i = 0; place != NULL && i < PAPPLY_TABLE_COUNTERS; i++)
		if (counts[i] != 0)
			pg_atomic_fetch_add_u64(&place->counters[i], counts[i]);
	if (place == NULL || conflict->at == 0)
		return;
	LWLockAcquire(&statistics->lock, LW_EXCLUSIVE);
	place->last_conflict = *conflict;
	LWLockRelease(&statistics->lock);
}

bool
papply_table_statistics_get_conflicts(int n, PapplyTableConflicts *copy)
{
	TablePlace *place = &statistics->places[n];

	if (n >= PLACES)
		return false;
	LWLockAcquire(&statistics->lock, LW_SHARED);
	copy->dbid = place->dbid;
	copy->subid = place->subid;
	copy->relid = place->relid;
	copy->last = place->last_conflict;
	for (int i = 0; i < PAPPLY_CONFLICT_TYPES; i++)
		copy->counts[i] = pg_atomic_read_u64(&place->counters[PAPPLY_TABLE_CONFLICTS + i]);
	LWLockRelease(&statistics->lock);
	return true;
}

bool
papply_table_statistics_get(Oid subid, Oid relid, uint64 *counts,
							PapplyTableDescription *description)
{
	TablePlace *place;

	LWLockAcquire(&statistics->lock, LW_SHARED);
	place = find_place(subid, relid);
	for (int i = 0; place != NULL && i < PAPPLY_TABLE_COUNTERS; i++)
		counts[i] = pg_atomic_read_u64(&place->counters[i]);
	if (place != NULL)
		*description = place->description;
	LWLockRelease(&statistics->lock);
	return place != NULL;
}

bool
papply_table_statistics_is_full(void)
{
	return statistics->is_full;
}

void
papply_table_statistics_reset(Oid subid)
{
	LWLockAcquire(&statistics->lock, LW_EXCLUSIVE);
	for (int i = 0; i < PLACES; i++)
		if (statistics->places[i].subid == subid)
			reset_counters(&statistics->places[i]);
	LWLockRelease(&statistics->lock);
}

/*** restart of the server: no other process runs ***/

void
papply_table_statistics_load(const PapplySavedTable *saved, int n)
{
	for (int i = 0; i < n; i++)
	{
		TablePlace *place = unused_place(saved[i].subid, saved[i].relid);

		if (place == NULL)
			return;
		place->dbid = saved[i].dbid;
		place->subid = saved[i].subid;
		place->relid = saved[i].relid;
		place->description = saved[i].description;
		place->last_conflict = saved[i].last_conflict;
		for (int counter = 0; counter < PAPPLY_TABLE_COUNTERS; counter++)
			pg_atomic_write_u64(&place->counters[counter], saved[i].counters[counter]);
	}
}

static void
save_place(PapplySavedTable *saved, TablePlace *place)
{
	saved->dbid = place->dbid;
	saved->subid = place->subid;
	saved->relid = place->relid;
	saved->description = place->description;
	saved->last_conflict = place->last_conflict;
	for (int counter = 0; counter < PAPPLY_TABLE_COUNTERS; counter++)
		saved->counters[counter] = pg_atomic_read_u64(&place->counters[counter]);
}

PapplySavedTable *
papply_table_statistics_save(int *n)
{
	PapplySavedTable *saved = palloc0(PLACES * sizeof(PapplySavedTable));

	*n = 0;
	for (int i = 0; i < PLACES; i++)
		if (OidIsValid(statistics->places[i].subid))
			save_place(&saved[(*n)++], &statistics->places[i]);
	return saved;
}
