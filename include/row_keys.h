/*-------------------------------------------------------------------------
 * row_keys.h
 *	  Compute the keys of the rows (and unique values) that a change touches.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROW_KEYS_H
#define PAPPLY_ROW_KEYS_H

#include "replication/logicalproto.h"
#include "utils/relcache.h"

#include "message.h"

/* Further unique indexes are not tracked, which is safe: see row_keys.c. */
#define PAPPLY_MAX_UNIQUE_KEYS 15
#define PAPPLY_MAX_KEYS (1 + PAPPLY_MAX_UNIQUE_KEYS)

/* A change has at most an old and a new hash for each key. */
#define PAPPLY_MAX_HASHES (2 * PAPPLY_MAX_KEYS)

typedef struct PapplyKey
{
	Oid			index;			/* InvalidOid: this is the identity */
	uint64		seed;			/* makes keys of different indexes different */
	bool		null_is_value;	/* else a row with a NULL has no such key */
	int			ncolumns;
	int16		columns[INDEX_MAX_KEYS];	/* numbers of published columns */
} PapplyKey;

typedef struct PapplyRowKeys
{
	bool		is_unknown;		/* a replica identity that no server sends */
	bool		old_is_whole;	/* REPLICA IDENTITY FULL: old tuples have all
								 * columns */
	int			nkeys;
	Bitmapset  *identity;		/* columns of the replica identity */
	uint64		seed;
	PapplyKey	keys[PAPPLY_MAX_KEYS];
} PapplyRowKeys;

typedef struct PapplyHashes
{
	bool		is_incomplete;	/* a key of the row could not be computed */
	int			count;
	uint64		hashes[PAPPLY_MAX_HASHES];
	uint8		keys[PAPPLY_MAX_HASHES];	/* the key that each is a hash of */
	bool		is_old[PAPPLY_MAX_HASHES];	/* of the row before the change? */
} PapplyHashes;

/*
 * Set the keys from the publisher's definition of the relation.  Keeps a
 * pointer to remote->attkeys.
 */
extern void papply_row_keys_init(PapplyRowKeys *keys, const LogicalRepRelation *remote);

/*
 * Add the unique indexes of the local table.  attnums has the published column
 * for each local one.  Called in a transaction.
 */
extern void papply_row_keys_add_unique(PapplyRowKeys *keys, Relation rel,
									   const AttrNumber *attnums);

/*
 * Return why values of this index cannot be computed from changes (a phrase
 * that follows its name), or NULL.  The index is open.  Values of an index that
 * is not unique are never computed.
 */
extern const char *papply_row_keys_why_untracked(Relation index, const AttrNumber *attnums);

/* Compute the hashes of all keys of the rows that a change touches. */
extern void papply_row_keys_compute(const PapplyRowKeys *keys,
									const PapplyChange *change, PapplyHashes *result);

#endif							/* PAPPLY_ROW_KEYS_H */
