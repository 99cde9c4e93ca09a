/*-------------------------------------------------------------------------
 * hot_keys.c
 *	  The keys for which transactions wait most.
 *
 * Runs in the postmaster (sizing), in writers, which add their waits for
 * dependencies at the end of a local transaction, and in backends that read
 * the views.
 *
 * The number of keys has no bound, but only few of them matter.  Each
 * subscription has a fixed number of entries.  A key without an entry takes
 * over the one with the fewest waits, and continues its count, which may thus
 * be too high.  So a key with more than one in PAPPLY_HOT_KEYS of all waits
 * always has an entry, and a count is never too low ("space saving": Metwally,
 * Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
 * Data Streams", ICDT 2005).  The same is done for all keys of an index
 * together.
 *
 * There are as many places as leader apply workers.  A place is found by the
 * OID of the subscription, and remains when the worker exits.  An additional
 * subscription takes the place whose last wait is the oldest.
 *
 * Locking: each place has a lock.  The writers of the subscription hold it for
 * some microseconds after a wait, which takes longer than that.  The
 * directory's lock is held while a place is given to another subscription, and
 * the lock of the place is acquired within it.  The owner of a place can be
 * read with either of them.  The time of the last wait is read without a lock,
 * as a hint.
 *
 * Values of keys are user data.  Code that shows them must check privileges.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "replication/logicallauncher.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "hot_keys.h"

typedef struct HotKeysPlace
{
	PapplyHotKeys keys;
	LWLock		lock;			/* protects keys */
} HotKeysPlace;

typedef struct HotKeysDirectory
{
	LWLock		lock;			/* protects the owners of the places */
	int			length;			/* set once */
	HotKeysPlace places[FLEXIBLE_ARRAY_MEMBER];
} HotKeysDirectory;

static HotKeysDirectory *directory = NULL;

#define HOT_KEYS_NAME PAPPLY_NAME " hot keys"

static Size
directory_size(void)
{
	return add_size(offsetof(HotKeysDirectory, places),
					mul_size(max_logical_replication_workers, sizeof(HotKeysPlace)));
}

void
papply_hot_keys_request_shmem(void)
{
	RequestAddinShmemSpace(directory_size());
	RequestNamedLWLockTranche(HOT_KEYS_NAME, 1);
}

void
papply_hot_keys_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	directory = ShmemInitStruct(HOT_KEYS_NAME, directory_size(), &found);
	if (!found)
	{
		int			tranche = GetNamedLWLockTranche(HOT_KEYS_NAME)->lock.tranche;

		memset(directory, 0, directory_size());
		LWLockInitialize(&directory->lock, tranche);
		directory->length = max_logical_replication_workers;
		for (int i = 0; i < directory->length; i++)
			LWLockInitialize(&directory->places[i].lock, tranche);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Return the place of a subscription, or the one that it should take.  The
 * caller holds the directory's lock.
 */
static int
find_place(Oid subid)
{
	int			oldest = 0;

	for (int i = 0; i < directory->length; i++)
	{
		PapplyHotKeys *keys = &directory->places[i].keys;

		if (keys->subid == subid)
			return i;
		if (keys->last_wait < directory->places[oldest].keys.last_wait)
			oldest = i;
	}
	return oldest;
}

/*
 * Lock and return the place of a subscription, after giving it one if it has
 * none.
 */
static HotKeysPlace *
lock_place(Oid subid)
{
	static int	last = 0;		/* the result of the last search */
	HotKeysPlace *place = &directory->places[last];

	LWLockAcquire(&place->lock, LW_EXCLUSIVE);
	if (place->keys.subid == subid)
		return place;
	LWLockRelease(&place->lock);

	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	last = find_place(subid);
	place = &directory->places[last];
	LWLockAcquire(&place->lock, LW_EXCLUSIVE);
	if (place->keys.subid != subid)
		memset(&place->keys, 0, sizeof(place->keys));
	place->keys.subid = subid;
	LWLockRelease(&directory->lock);
	return place;
}

static bool
is_of(const PapplyHotKey *entry, const PapplyKeyWait *wait, uint32 hash)
{
	return entry->waits > 0 && entry->relid == wait->relid &&
		entry->key.index == wait->key.index && entry->key.hash == hash &&
		entry->is_barrier == (wait->key.hash == 0);
}

/*
 * Return the entry of a key.  If it has none, it gets the one with the fewest
 * waits.
 */
static PapplyHotKey *
entry_of(PapplyHotKey *entries, int length, const PapplyKeyWait *wait, uint32 hash)
{
	PapplyHotKey *least = &entries[0];

	for (int i = 0; i < length; i++)
	{
		if (is_of(&entries[i], wait, hash))
			return &entries[i];
		if (entries[i].waits < least->waits)
			least = &entries[i];
	}
	least->relid = wait->relid;
	least->is_barrier = wait->key.hash == 0;
	least->key.index = wait->key.index;
	least->key.hash = hash;
	least->max_error = least->waits;
	least->us = 0;
	least->values[0] = '\0';
	return least;
}

static void
add_wait(PapplyHotKey *entry, const PapplyKeyWait *wait, TimestampTz now)
{
	entry->waits++;
	entry->us += wait->us;
	entry->last_wait = now;
	if (entry->key.hash != 0)
		strlcpy(entry->values, wait->values, sizeof(entry->values));
}

void
papply_hot_keys_add(Oid subid, const PapplyKeyWait *waits, int count)
{
	TimestampTz now = GetCurrentTimestamp();
	HotKeysPlace *place = lock_place(subid);
	PapplyHotKeys *keys = &place->keys;

	keys->last_wait = now;
	for (int i = 0; i < count; i++)
	{
		const PapplyKeyWait *wait = &waits[i];

		if (wait->key.hash != 0)
			add_wait(entry_of(keys->keys, PAPPLY_HOT_KEYS, wait, wait->key.hash), wait, now);
		add_wait(entry_of(keys->indexes, PAPPLY_HOT_INDEXES, wait, 0), wait, now);
	}
	LWLockRelease(&place->lock);
}

bool
papply_hot_keys_peek(int n, PapplyHotKeys *copy)
{
	HotKeysPlace *place;

	if (n < 0 || n >= directory->length)
		return false;
	place = &directory->places[n];
	LWLockAcquire(&place->lock, LW_SHARED);
	*copy = place->keys;
	LWLockRelease(&place->lock);
	return true;
}

/* Clear the entries.  The subscription keeps its place. */
static void
reset_keys(PapplyHotKeys *keys)
{
	keys->last_wait = 0;
	memset(keys->keys, 0, sizeof(keys->keys));
	memset(keys->indexes, 0, sizeof(keys->indexes));
}

void
papply_hot_keys_reset(Oid subid)
{
	for (int i = 0; i < directory->length; i++)
	{
		HotKeysPlace *place = &directory->places[i];

		LWLockAcquire(&place->lock, LW_EXCLUSIVE);
		if (place->keys.subid == subid)
			reset_keys(&place->keys);
		LWLockRelease(&place->lock);
	}
}
