/*-------------------------------------------------------------------------
 * room: pool
 *
 * table_statistics.h
 *	  What is counted and known of each subscribed table.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_STATISTICS_H
#define PAPPLY_TABLE_STATISTICS_H

#include "parallel_apply.h"

typedef enum PapplyTableCounter
{
	PAPPLY_TABLE_INSERTS,		/* changes committed, while there are writers */
	PAPPLY_TABLE_UPDATES,
	PAPPLY_TABLE_DELETES,
	PAPPLY_TABLE_WAITS,			/* for a dependency, at a change of it */
	PAPPLY_TABLE_WAIT_US,
	PAPPLY_TABLE_MISSING,		/* rows that were not there in the end */
	PAPPLY_TABLE_RETRIED_LOOKUPS,	/* rows that were looked for once more, in
									 * turn */
	PAPPLY_TABLE_COUNTERS		/* number of the above */
} PapplyTableCounter;

/* Columns beyond this number are taken to be published. */
#define PAPPLY_DESCRIBED_COLUMNS 256

/* What the publisher has said of a table, by local columns; bit 0 is column 1. */
typedef struct PapplyTableDescription
{
	bool		is_known;		/* it has said something */
	bool		is_full;		/* REPLICA IDENTITY FULL */
	int			natts;			/* of the local table, at that time */
	uint8		published[PAPPLY_DESCRIBED_COLUMNS / 8];
	uint8		identity[PAPPLY_DESCRIBED_COLUMNS / 8];
} PapplyTableDescription;

/* The columns of published and identity, by their bit. */
static inline bool
papply_table_description_has(const uint8 *columns, int bit)
{
	return (columns[bit / 8] & (1 << (bit % 8))) != 0;
}

static inline void
papply_table_description_set(uint8 *columns, int bit)
{
	columns[bit / 8] |= 1 << (bit % 8);
}

/* Where a table was found. */
typedef struct PapplyTableHint
{
	Oid			relid;
	uint32		taken;			/* valid until a place is taken; 0: never */
	int			place;			/* -1: none */
} PapplyTableHint;

/* Hooks for _PG_init. */
extern void papply_table_statistics_request_shmem(void);
extern void papply_table_statistics_init_shmem(void);

/*
 * Keep statistics of a table of this database's subscription from here on, and
 * what was said of it.  Returns false if there is no place.  In a transaction.
 */
extern bool papply_table_statistics_describe(Oid subid, Oid relid,
											 const PapplyTableDescription *description);

/*
 * Add to the counters of a table, if it has a place.  *hint, at first zero, makes
 * the next call, mostly for the same table, fast.
 */
extern void papply_table_statistics_add(Oid subid, Oid relid, const uint64 *counts,
										PapplyTableHint *hint);

/* Is it time to ask again for a table that got no place? */
extern bool papply_table_statistics_may_have_place(void);

/* Copy what there is of a table; false if it has no place. */
extern bool papply_table_statistics_get(Oid subid, Oid relid, uint64 *counts,
										PapplyTableDescription *description);

/* Are tables without a place not counted, since all places are taken? */
extern bool papply_table_statistics_is_full(void);

/* The counters of a subscription's tables begin at zero again. */
extern void papply_table_statistics_reset(Oid subid);

#endif							/* PAPPLY_TABLE_STATISTICS_H */
