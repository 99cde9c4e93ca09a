/*-------------------------------------------------------------------------
 * hot_keys.h
 *	  The keys for which transactions wait most.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_HOT_KEYS_H
#define PAPPLY_HOT_KEYS_H

#include "datatype/timestamp.h"

#include "queue.h"

struct PapplySubscriptionSlot;

/* Bytes kept of a key's values, including the terminating zero byte. */
#define PAPPLY_KEY_VALUES_BYTES 128

/* A wait that has ended. */
typedef struct PapplyKeyWait
{
	Oid			relid;
	PapplyKeyName key;
	uint64		us;
	char		values[PAPPLY_KEY_VALUES_BYTES];	/* "" if not known */
} PapplyKeyWait;

/* Waits for one key, or for all keys of an index (hash 0). */
typedef struct PapplyHotKey
{
	Oid			relid;
	bool		is_barrier;		/* the waits are not for a key */
	PapplyKeyName key;			/* is_old is not used */
	uint64		waits;			/* 0: the entry is free */
	uint64		max_error;		/* at most this many of waits belong to other
								 * keys */
	uint64		us;				/* since the entry was created */
	TimestampTz last_wait;
	char		values[PAPPLY_KEY_VALUES_BYTES];
} PapplyHotKey;

/* Number of entries of a subscription for keys and for indexes. */
#define PAPPLY_HOT_KEYS 32
#define PAPPLY_HOT_INDEXES 16

typedef struct PapplyHotKeys
{
	PapplyHotKey keys[PAPPLY_HOT_KEYS];
	PapplyHotKey indexes[PAPPLY_HOT_INDEXES];
} PapplyHotKeys;

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
