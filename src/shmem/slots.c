/*-------------------------------------------------------------------------
 * slots.c
 *	  One slot of shared memory for each subscription.
 *
 * Runs in the postmaster (sizing), in receivers, in writers, and in backends
 * that read the views.
 *
 * Everything in main shared memory that belongs to one subscription is in its
 * slot: the pool, the statistics and the hot keys.  So a subscription has all
 * of it or nothing.  Only statistics of tables, whose number has no bound, are
 * in an area of their own (table_statistics.c).
 *
 * There are as many slots as there can be leader apply workers, so a worker
 * always finds one.  Each slot takes about 55 kB.  A subscription takes a slot
 * when its apply worker connects to the publisher, and keeps it when the
 * worker exits.  Another subscription may take a slot without a worker: first
 * those that were never used and those whose subscription was dropped, then
 * the one that has had no worker for the longest time.  The new owner finds it
 * zeroed.
 *
 * Locking: one lock protects the owners of the slots.  A process that has
 * attached itself to a slot needs no lock to access it, because a slot with a
 * receiver does not change its owner.  Readers find a slot by its subscription
 * and copy from it while they hold the lock.  The parts of a slot have their
 * own rules, which are described in their files.
 *
 * If a receiver dies, its exit callback makes the slot free.  If a process is
 * killed by SIGKILL, the postmaster reinitializes shared memory.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "replication/logicallauncher.h"
#include "storage/shmem.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "lookup.h"
#include "slots.h"

typedef struct Slots
{
	LWLock		lock;
	int			length;
	uint64		detached;		/* protected by lock */
	PapplySubscriptionSlot slots[FLEXIBLE_ARRAY_MEMBER];
} Slots;

static Slots *slots = NULL;

PapplySubscriptionSlot *papply_subscription_slot = NULL;

static Size
slots_size(void)
{
	return add_size(offsetof(Slots, slots),
					mul_size(max_logical_replication_workers, sizeof(PapplySubscriptionSlot)));
}

void
papply_slots_request_shmem(void)
{
	RequestAddinShmemSpace(slots_size());
	RequestNamedLWLockTranche(PAPPLY_NAME, 1);
}

void
papply_slots_init_lock(LWLock *lock)
{
	LWLockInitialize(lock, slots->lock.tranche);
}

void
papply_slots_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	slots = ShmemInitStruct(PAPPLY_NAME, slots_size(), &found);
	if (!found)
	{
		memset(slots, 0, slots_size());
		LWLockInitialize(&slots->lock, GetNamedLWLockTranche(PAPPLY_NAME)->lock.tranche);
		slots->length = max_logical_replication_workers;
		for (int i = 0; i < slots->length; i++)
		{
			SpinLockInit(&slots->slots[i].error_mutex);
			papply_slots_init_lock(&slots->slots[i].hot_keys_lock);
			papply_slots_init_lock(&slots->slots[i].pool.registry_lock);
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

void
papply_slots_lock(LWLockMode mode)
{
	LWLockAcquire(&slots->lock, mode);
}

void
papply_slots_unlock(void)
{
	LWLockRelease(&slots->lock);
}

PapplySubscriptionSlot *
papply_slots_get(int n)
{
	Assert(n >= 0);
	return n < slots->length ? &slots->slots[n] : NULL;
}

int
papply_slots_number(const PapplySubscriptionSlot *slot)
{
	Assert(slot >= slots->slots && slot < slots->slots + slots->length);
	return slot - slots->slots;
}

/*** owners ***/

static bool
is_of_this_database(const PapplySubscriptionSlot *slot)
{
	return OidIsValid(slot->subid) && slot->dbid == MyDatabaseId;
}

PapplySubscriptionSlot *
papply_slots_find(Oid subid)
{
	Assert(LWLockHeldByMe(&slots->lock));
	for (int i = 0; i < slots->length; i++)
		if (slots->slots[i].subid == subid && is_of_this_database(&slots->slots[i]))
			return &slots->slots[i];
	return NULL;
}

List *
papply_slots_subscriptions(void)
{
	List	   *subscriptions = NIL;

	papply_slots_lock(LW_SHARED);
	for (int i = 0; i < slots->length; i++)
		if (is_of_this_database(&slots->slots[i]))
			subscriptions = lappend_oid(subscriptions, slots->slots[i].subid);
	papply_slots_unlock();
	return subscriptions;
}

/*
 * Return the subscriptions that have a slot but were dropped.  The caller must
 * not hold the lock.
 */
static List *
dropped_subscriptions(void)
{
	PapplyLookup lookup = papply_lookup_begin();
	List	   *dropped = NIL;

	Assert(!LWLockHeldByMe(&slots->lock));
	MemoryContextSwitchTo(lookup.context);
	for (int i = 0; i < slots->length; i++)
	{
		Oid			subid = slots->slots[i].subid;

		if (OidIsValid(subid) && !SearchSysCacheExists1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid)))
			dropped = lappend_oid(dropped, subid);
	}
	papply_lookup_end(lookup);
	return dropped;
}

/*
 * Return a slot for another subscription: one that was never used or whose
 * subscription was dropped, or else the one that has been free for the longest
 * time; NULL if none is free.  The caller holds the lock.
 */
static PapplySubscriptionSlot *
find_free_slot(const List *dropped)
{
	PapplySubscriptionSlot *oldest = NULL;
	uint64		since = 0;

	Assert(LWLockHeldByMeInMode(&slots->lock, LW_EXCLUSIVE));
	for (int i = 0; i < slots->length; i++)
	{
		PapplySubscriptionSlot *slot = &slots->slots[i];
		uint64		detached = list_member_oid(dropped, slot->subid) ? 0 : slot->detached;

		if (slot->receiver_pid != 0 || (oldest != NULL && detached >= since))
			continue;
		oldest = slot;
		since = detached;
	}
	return oldest;
}

/* Give the slot to a subscription of this database. */
static void
set_owner(PapplySubscriptionSlot *slot, Oid subid)
{
	memset(&slot->data, 0, sizeof(slot->data));
	slot->data.statistics.stats_reset = GetCurrentTimestamp();
	slot->data.statistics.progress.current_at = slot->data.statistics.stats_reset;
	slot->dbid = MyDatabaseId;
	slot->subid = subid;
}

void
papply_slots_attach_receiver(Oid subid)
{
	List	   *dropped = dropped_subscriptions();

	papply_slots_lock(LW_EXCLUSIVE);
	papply_subscription_slot = papply_slots_find(subid);
	if (papply_subscription_slot == NULL)
	{
		papply_subscription_slot = find_free_slot(dropped);
		if (papply_subscription_slot != NULL)
			set_owner(papply_subscription_slot, subid);
	}
	if (papply_subscription_slot != NULL)
		papply_subscription_slot->receiver_pid = MyProcPid;
	papply_slots_unlock();
	list_free(dropped);
}

void
papply_slots_detach_receiver(void)
{
	if (papply_subscription_slot == NULL)
		return;
	papply_slots_lock(LW_EXCLUSIVE);
	Assert(papply_subscription_slot->receiver_pid == MyProcPid);
	papply_subscription_slot->receiver_pid = 0;
	papply_subscription_slot->detached = ++slots->detached;
	papply_slots_unlock();
	papply_subscription_slot = NULL;
}

PapplySubscriptionSlot *
papply_slots_restore(Oid dbid, Oid subid)
{
	Assert(!IsUnderPostmaster);
	for (int i = 0; i < slots->length; i++)
	{
		PapplySubscriptionSlot *slot = &slots->slots[i];

		if (OidIsValid(slot->subid))
			continue;
		slot->dbid = dbid;
		slot->subid = subid;
		slot->detached = slots->detached = 1;
		return slot;
	}
	return NULL;
}
