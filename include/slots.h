/*-------------------------------------------------------------------------
 * slots.h
 *	  One slot of shared memory for each subscription.
 *
 * A subscription with a leader apply worker has a slot in the server's main
 * shared memory, with or without a pool.  The slot outlives the worker.
 * Another subscription takes it only if no other slot is free.
 *
 * Only the files of src/shmem and src/stats access the fields.  Each part
 * belongs to the file that its comment names.  Other files read it by the OID
 * of the subscription: see papply_pool_get(), papply_statistics_get() and
 * papply_hot_keys_get().
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SLOTS_H
#define PAPPLY_SLOTS_H

#include "nodes/pg_list.h"
#include "storage/lwlock.h"
#include "storage/spin.h"

#include "pool.h"
#include "slot_data.h"

/* What is zeroed when another subscription takes the slot. */
typedef struct PapplySubscriptionSlotData
{
	PapplyPoolHistory history;	/* pool.c; written by the receiver alone */
	PapplySharedStatistics statistics;	/* statistics.c; see there */
	PapplyHotKeys hot_keys;		/* hot_keys.c; protected by hot_keys_lock */
} PapplySubscriptionSlotData;

typedef struct PapplySubscriptionSlot
{
	/* protected by the lock of the slots */
	Oid			dbid;
	Oid			subid;			/* InvalidOid if never used */
	pid_t		receiver_pid;	/* 0: another subscription may take the slot */
	uint64		detached;		/* order in which slots became free */

	slock_t		error_mutex;	/* see statistics.c */
	LWLock		hot_keys_lock;
	PapplySubscriptionSlotData data;
	PapplyPool	pool;			/* pool.c; of one pool after the other */
} PapplySubscriptionSlot;

/* The slot of this receiver or writer, or NULL. */
extern PapplySubscriptionSlot *papply_subscription_slot;

/* For _PG_init: request and initialize the shared memory. */
extern void papply_slots_request_shmem(void);
extern void papply_slots_init_shmem(void);

/*
 * Acquire, or release, the lock of the slots.  A lock within a slot may be
 * acquired while it is held, but not the other way round.
 */
extern void papply_slots_lock(LWLockMode mode);
extern void papply_slots_unlock(void);

/* Initialize a lock in the same tranche. */
extern void papply_slots_init_lock(LWLock *lock);

/*
 * Receiver: find or take the slot of a subscription of this database, and set
 * papply_subscription_slot, which remains NULL if no slot is free; or leave
 * the slot, after the writers have exited.
 */
extern void papply_slots_attach_receiver(Oid subid);
extern void papply_slots_detach_receiver(void);

/*
 * Return the slot of a subscription of this database, or NULL.  The caller
 * holds the lock.
 */
extern PapplySubscriptionSlot *papply_slots_find(Oid subid);

/* Return the subscriptions of this database that have a slot. */
extern List *papply_slots_subscriptions(void);

/* Return the n-th slot, or NULL if there are fewer; or the number of a slot. */
extern PapplySubscriptionSlot *papply_slots_get(int n);
extern int	papply_slots_number(const PapplySubscriptionSlot *slot);

/*
 * Postmaster, at start: give a slot that was never used to a subscription, and
 * return it; NULL if there is none.
 */
extern PapplySubscriptionSlot *papply_slots_restore(Oid dbid, Oid subid);

#endif							/* PAPPLY_SLOTS_H */
