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
 * place that was not used, beginning with the one that its OIDs hash to, or, if
 * all are used, any place whose table was dropped.  A place can get another
 * owner but never becomes unused again, so a search can stop at an unused one.
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
	PapplyTableRecord record;

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
	memset(&place->record.last_conflict, 0, sizeof(place->record.last_conflict));
}

void
papply_table_statistics_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	statistics = ShmemInitStruct(STATISTICS_NAME, sizeof(TableStatistics), &found);
	if (!found)
	{
		memset(statistics, 0, sizeof(TableStatistics)); /* atomic counters, too */
		LWLockInitialize(&statistics->lock,
						 GetNamedLWLockTranche(STATISTICS_NAME)->lock.tranche);
		pg_atomic_init_u32(&statistics->taken, 1);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Return the place of a table or, if it has none, the unused place that it can
 * take; NULL if there is neither.  The caller holds the lock.
 */
static TablePlace *
search_place(Oid subid, Oid relid)
{
	uint32		hash = hash_combine(murmurhash32(subid), murmurhash32(relid));

	Assert(LWLockHeldByMe(&statistics->lock) || !IsUnderPostmaster);
	for (int i = 0; i < PLACES; i++)
	{
		TablePlace *place = &statistics->places[(hash + i) % PLACES];

		if (!OidIsValid(place->record.subid) ||
			(place->record.subid == subid && place->record.relid == relid))
			return place;
	}
	return NULL;
}

/* Return the place of a table, or NULL.  The caller holds the lock. */
static TablePlace *
find_place(Oid subid, Oid relid)
{
	TablePlace *place = search_place(subid, relid);

	return place != NULL && OidIsValid(place->record.subid) ? place : NULL;
}

/*
 * Was the subscription or the table dropped?  A table of another database
 * cannot be looked up here.
 */
static bool
is_gone(const PapplyTableRecord *record)
{
	return !SearchSysCacheExists1(SUBSCRIPTIONOID, ObjectIdGetDatum(record->subid)) ||
		(record->dbid == MyDatabaseId &&
		 !SearchSysCacheExists1(RELOID, ObjectIdGetDatum(record->relid)));
}

bool
papply_table_statistics_may_have_place(void)
{
	return !papply_clock_is_within(full_since, FULL_MS);
}

/* The caller holds the lock. */
static void
take_place(TablePlace *place, Oid subid, Oid relid)
{
	Assert(LWLockHeldByMeInMode(&statistics->lock, LW_EXCLUSIVE));
	reset_counters(place);
	place->record.dbid = MyDatabaseId;
	place->record.relid = relid;
	place->record.subid = subid;
	statistics->is_full = false;
	pg_atomic_fetch_add_u32(&statistics->taken, 1);
}

/*
 * All places are used.  Give the place of a table that was dropped to this one.
 * Returns false if there is none.  Catalog lookups may take a while, so they
 * are done without the lock, and if another receiver is faster, the caller
 * tries again.
 */
static bool
take_place_of_dropped(Oid subid, Oid relid)
{
	if (!papply_table_statistics_may_have_place())
		return false;
	full_since = 0;
	for (int i = 0; i < PLACES; i++)
	{
		TablePlace *place = &statistics->places[i];
		PapplyTableRecord seen;

		LWLockAcquire(&statistics->lock, LW_SHARED);
		seen = place->record;
		LWLockRelease(&statistics->lock);
		if (!is_gone(&seen))
			continue;
		LWLockAcquire(&statistics->lock, LW_EXCLUSIVE);
		if (place->record.subid == seen.subid && place->record.relid == seen.relid)
			take_place(place, subid, relid);
		LWLockRelease(&statistics->lock);
		return true;
	}
	full_since = papply_clock_now();
	return false;
}

bool
papply_table_statistics_describe(Oid subid, Oid relid,
								 const PapplyTableDescription *description)
{
	TablePlace *place;

	do
	{
		LWLockAcquire(&statistics->lock, LW_EXCLUSIVE);
		place = search_place(subid, relid);
		if (place != NULL && !OidIsValid(place->record.subid))
			take_place(place, subid, relid);
		if (place != NULL)
			place->record.description = *description;
		LWLockRelease(&statistics->lock);
	} while (place == NULL && take_place_of_dropped(subid, relid));
	if (place == NULL)
		statistics->is_full = true;
	return place != NULL;
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
	place->record.last_conflict = *conflict;
	LWLockRelease(&statistics->lock);
}

static void
copy_place(PapplyTableStatistics *copy, TablePlace *place)
{
	copy->record = place->record;
	for (int i = 0; i < PAPPLY_TABLE_COUNTERS; i++)
		copy->counters[i] = pg_atomic_read_u64(&place->counters[i]);
}

bool
papply_table_statistics_get(Oid subid, Oid relid, PapplyTableStatistics *copy)
{
	TablePlace *place;

	LWLockAcquire(&statistics->lock, LW_SHARED);
	place = find_place(subid, relid);
	if (place != NULL)
		copy_place(copy, place);
	LWLockRelease(&statistics->lock);
	return place != NULL;
}

bool
papply_table_statistics_get_nth(int n, PapplyTableStatistics *copy)
{
	if (n >= PLACES)
		return false;
	LWLockAcquire(&statistics->lock, LW_SHARED);
	copy_place(copy, &statistics->places[n]);
	LWLockRelease(&statistics->lock);
	return true;
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
	{
		const PapplyTableRecord *record = &statistics->places[i].record;

		if (record->dbid == MyDatabaseId && (!OidIsValid(subid) || record->subid == subid))
			reset_counters(&statistics->places[i]);
	}
	LWLockRelease(&statistics->lock);
}

/*** restart of the server: no other process runs ***/

void
papply_table_statistics_load(const PapplyTableStatistics *saved, uint32 n)
{
	for (uint32 i = 0; i < n; i++)
	{
		TablePlace *place = search_place(saved[i].record.subid, saved[i].record.relid);

		if (place == NULL)
			return;
		place->record = saved[i].record;
		for (int counter = 0; counter < PAPPLY_TABLE_COUNTERS; counter++)
			pg_atomic_write_u64(&place->counters[counter], saved[i].counters[counter]);
	}
}

PapplyTableStatistics *
papply_table_statistics_save(uint32 *n)
{
	PapplyTableStatistics *saved = palloc0(PLACES * sizeof(PapplyTableStatistics));

	*n = 0;
	for (int i = 0; i < PLACES; i++)
		if (OidIsValid(statistics->places[i].record.subid))
			copy_place(&saved[(*n)++], &statistics->places[i]);
	return saved;
}
