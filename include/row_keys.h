/*-------------------------------------------------------------------------
 * room: receiver
 *
 * row_keys.h
 *	  Which rows (and unique values) does a change touch?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROW_KEYS_H
#define PAPPLY_ROW_KEYS_H

#include "replication/logicalproto.h"
#include "utils/relcache.h"

#include "message.h"

/* Unique indexes beyond this number are not tracked: a miss shows itself. */
#define PAPPLY_MAX_UNIQUE_KEYS 15
#define PAPPLY_MAX_KEYS (1 + PAPPLY_MAX_UNIQUE_KEYS)

/* A change has at most an old and a new hash for each key. */
#define PAPPLY_MAX_HASHES (2 * PAPPLY_MAX_KEYS)

typedef struct PapplyKey
{
	Oid			index;			/* InvalidOid: the identity */
	uint64		seed;			/* tells keys of different indexes apart */
	bool		is_identity;	/* the publisher's replica identity */
	bool		null_is_value;	/* else a row with a NULL has no such key */
	int			ncolumns;
	int16		columns[INDEX_MAX_KEYS];	/* numbers of published columns */
} PapplyKey;

typedef struct PapplyRowKeys
{
	bool		is_unknown;		/* a replica identity that no server has */
	bool		old_is_whole;	/* REPLICA IDENTITY FULL: old tuples have all */
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
	uint8		keys[PAPPLY_MAX_HASHES];	/* of which key each is one */
	bool		is_old[PAPPLY_MAX_HASHES];	/* before the change */
} PapplyHashes;

/*
 * Keys by what the publisher says of its relation.  Keeps a pointer to
 * remote->attkeys.
 */
extern void papply_row_keys_init(PapplyRowKeys *keys, const LogicalRepRelation *remote);

/*
 * Add the unique indexes of the local table; attnums has the published column
 * for each local one.  In a transaction.
 */
extern void papply_row_keys_add_unique(PapplyRowKeys *keys, Relation rel,
									   const AttrNumber *attnums);

/*
 * Why values of that index cannot be told from changes (a phrase that follows
 * its name), or NULL; it is open.  Those of an index that is not unique never
 * are.
 */
extern const char *papply_row_keys_why_untracked(Relation index, const AttrNumber *attnums);

/* The hashes of all keys of the rows that a change touches. */
extern void papply_row_keys_compute(const PapplyRowKeys *keys,
									const PapplyChange *change, PapplyHashes *result);

#endif							/* PAPPLY_ROW_KEYS_H */
