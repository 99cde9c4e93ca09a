/*-------------------------------------------------------------------------
 * hot_keys.c
 *	  The keys for which transactions wait most.
 *
 * Runs in writers, which add their waits for dependencies at the end of a local
 * transaction, and in backends that read the views.
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
 * Locking: the keys of each subscription have a lock in its slot (slots.c).
 * The writers of the subscription hold it for some microseconds after a wait,
 * which takes longer than that.
 *
 * Values of keys are user data.  Code that shows them must check privileges.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "hot_keys.h"
#include "slots.h"

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
	Assert(entry->waits >= entry->max_error);
	entry->waits++;
	entry->us += wait->us;
	entry->last_wait = now;
	if (entry->key.hash != 0)
		strlcpy(entry->values, wait->values, sizeof(entry->values));
}

void
papply_hot_keys_add(const PapplyKeyWait *waits, int count)
{
	TimestampTz now = GetCurrentTimestamp();
	PapplyHotKeys *keys;

	if (papply_subscription_slot == NULL)
		return;
	keys = &papply_subscription_slot->data.hot_keys;
	LWLockAcquire(&papply_subscription_slot->hot_keys_lock, LW_EXCLUSIVE);
	for (int i = 0; i < count; i++)
	{
		const PapplyKeyWait *wait = &waits[i];

		if (wait->key.hash != 0)
			add_wait(entry_of(keys->keys, PAPPLY_HOT_KEYS, wait, wait->key.hash), wait, now);
		add_wait(entry_of(keys->indexes, PAPPLY_HOT_INDEXES, wait, 0), wait, now);
	}
	LWLockRelease(&papply_subscription_slot->hot_keys_lock);
}

bool
papply_hot_keys_get(Oid subid, PapplyHotKeys *copy)
{
	PapplySubscriptionSlot *slot;

	papply_slots_lock(LW_SHARED);
	slot = papply_slots_find(subid);
	if (slot != NULL)
	{
		LWLockAcquire(&slot->hot_keys_lock, LW_SHARED);
		*copy = slot->data.hot_keys;
		LWLockRelease(&slot->hot_keys_lock);
	}
	papply_slots_unlock();
	return slot != NULL;
}

void
papply_hot_keys_reset(PapplySubscriptionSlot *slot)
{
	LWLockAcquire(&slot->hot_keys_lock, LW_EXCLUSIVE);
	memset(&slot->data.hot_keys, 0, sizeof(slot->data.hot_keys));
	LWLockRelease(&slot->hot_keys_lock);
}
