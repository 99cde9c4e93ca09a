/*-------------------------------------------------------------------------
 * hot_keys.c
 *	  Which keys do transactions wait for most?
 *
 * Runs in the postmaster (sizing), in writers, which add their waits for
 * dependencies at the end of a local transaction, and in backends that read the
 * views.
 *
 * The keys of a load have no bound, but those that matter are few.  A
 * subscription has a fixed number of entries; a key that has none takes over the
 * one with the fewest waits, with that number, which it thus may have too many.
 * So a key with more than one in PAPPLY_HOT_KEYS of all waits is always there,
 * and the number is never too small ("space saving": Metwally, Agrawal, El
 * Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams",
 * ICDT 2005).  The same is kept once more for all keys of an index together.
 *
 * There are as many places as leader apply workers, found by the OID of the
 * subscription.  They survive the worker; one more subscription takes the place
 * whose last wait is the oldest.
 *
 * Locking: one lock, held for some microseconds by those who have waited, which
 * takes longer.  Values of keys are user data: whoever shows them has to look who
 * may see them.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "replication/logicallauncher.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "hot_keys.h"

/* Protected by the lock. */
typedef struct HotKeysDirectory
{
	LWLock		lock;
	int			length;
	PapplyHotKeys places[FLEXIBLE_ARRAY_MEMBER];
} HotKeysDirectory;

static HotKeysDirectory *directory = NULL;

#define HOT_KEYS_NAME PAPPLY_NAME " hot keys"

static Size
directory_size(void)
{
	return add_size(offsetof(HotKeysDirectory, places),
					mul_size(max_logical_replication_workers, sizeof(PapplyHotKeys)));
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
		memset(directory, 0, directory_size());
		LWLockInitialize(&directory->lock, GetNamedLWLockTranche(HOT_KEYS_NAME)->lock.tranche);
		directory->length = max_logical_replication_workers;
	}
	LWLockRelease(AddinShmemInitLock);
}

/* The place of a subscription, which it gets if it has none; lock is held. */
static PapplyHotKeys *
place_of(Oid subid)
{
	PapplyHotKeys *oldest = &directory->places[0];

	for (int i = 0; i < directory->length; i++)
	{
		PapplyHotKeys *place = &directory->places[i];

		if (place->subid == subid)
			return place;
		if (place->last_wait < oldest->last_wait)
			oldest = place;
	}
	memset(oldest, 0, sizeof(*oldest));
	oldest->subid = subid;
	return oldest;
}

static bool
is_of(const PapplyHotKey *entry, const PapplyKeyWait *wait, uint32 hash)
{
	return entry->waits > 0 && entry->relid == wait->relid &&
		entry->key.index == wait->key.index && entry->key.hash == hash &&
		entry->is_barrier == (wait->key.hash == 0);
}

/* The entry of a key, or that with the fewest waits, made the key's. */
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
	least->too_many = least->waits;
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
	PapplyHotKeys *place;

	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	place = place_of(subid);
	place->last_wait = now;
	for (int i = 0; i < count; i++)
	{
		const PapplyKeyWait *wait = &waits[i];

		if (wait->key.hash != 0)
			add_wait(entry_of(place->keys, PAPPLY_HOT_KEYS, wait, wait->key.hash), wait, now);
		add_wait(entry_of(place->indexes, PAPPLY_HOT_INDEXES, wait, 0), wait, now);
	}
	LWLockRelease(&directory->lock);
}

bool
papply_hot_keys_peek(int n, PapplyHotKeys *copy)
{
	if (n < 0 || n >= directory->length)
		return false;
	LWLockAcquire(&directory->lock, LW_SHARED);
	*copy = directory->places[n];
	LWLockRelease(&directory->lock);
	return true;
}

void
papply_hot_keys_reset(Oid subid)
{
	LWLockAcquire(&directory->lock, LW_EXCLUSIVE);
	for (int i = 0; i < directory->length; i++)
		if (directory->places[i].subid == subid)
			memset(&directory->places[i], 0, sizeof(PapplyHotKeys));
	LWLockRelease(&directory->lock);
}
