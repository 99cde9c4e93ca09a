/*-------------------------------------------------------------------------
 * room: pool
 *
 * hot_keys.h
 *	  Which keys do transactions wait for most?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_HOT_KEYS_H
#define PAPPLY_HOT_KEYS_H

#include "datatype/timestamp.h"

#include "queue.h"

/* Bytes of a key's values that are kept, with a zero byte. */
#define PAPPLY_KEY_VALUES_BYTES 128

/* A wait that has ended. */
typedef struct PapplyKeyWait
{
	Oid			relid;
	PapplyKeyName key;
	uint64		us;
	char		values[PAPPLY_KEY_VALUES_BYTES];	/* "": not known */
} PapplyKeyWait;

/* What is known of a key, or of all keys of an index: hash 0. */
typedef struct PapplyHotKey
{
	Oid			relid;
	bool		is_barrier;		/* waits for no key */
	PapplyKeyName key;			/* is_old does not matter */
	uint64		waits;			/* 0: nothing here */
	uint64		max_error;		/* of waits, at most so many were of others */
	uint64		us;				/* since it is here */
	TimestampTz last_wait;
	char		values[PAPPLY_KEY_VALUES_BYTES];
} PapplyHotKey;

/* Keys, and keys as a whole, that are kept for a subscription. */
#define PAPPLY_HOT_KEYS 32
#define PAPPLY_HOT_INDEXES 16

typedef struct PapplyHotKeys
{
	Oid			subid;			/* InvalidOid: none */
	TimestampTz last_wait;
	PapplyHotKey keys[PAPPLY_HOT_KEYS];
	PapplyHotKey indexes[PAPPLY_HOT_INDEXES];
} PapplyHotKeys;

/* Hooks for _PG_init. */
extern void papply_hot_keys_request_shmem(void);
extern void papply_hot_keys_init_shmem(void);

/* Add waits of a writer of that subscription. */
extern void papply_hot_keys_add(Oid subid, const PapplyKeyWait *waits, int count);

/* Copy the n-th place; false when there is no such place. */
extern bool papply_hot_keys_peek(int n, PapplyHotKeys *copy);

/* Forget all waits of a subscription. */
extern void papply_hot_keys_reset(Oid subid);

#endif							/* PAPPLY_HOT_KEYS_H */
