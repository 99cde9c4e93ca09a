/*-------------------------------------------------------------------------
 * hot_keys.h
 *	  The keys for which transactions wait most.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_HOT_KEYS_H
#define PAPPLY_HOT_KEYS_H

#include "slot_data.h"

struct PapplySubscriptionSlot;

/* A wait that has ended. */
typedef struct PapplyKeyWait
{
	Oid			relid;
	PapplyKeyName key;
	uint64		us;
	char		values[PAPPLY_KEY_VALUES_BYTES];	/* "" if not known */
} PapplyKeyWait;

/* Add waits of this writer. */
extern void papply_hot_keys_add(const PapplyKeyWait *waits, int count);

/*
 * Copy those of a subscription of this database, for views.  Returns false if
 * it has no slot.
 */
extern bool papply_hot_keys_get(Oid subid, PapplyHotKeys *copy);

/* Discard all waits in a slot.  The caller holds the lock of the slots. */
extern void papply_hot_keys_reset(struct PapplySubscriptionSlot *slot);

#endif							/* PAPPLY_HOT_KEYS_H */
