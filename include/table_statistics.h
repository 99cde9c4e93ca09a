/*-------------------------------------------------------------------------
 * table_statistics.h
 *	  Counters and descriptions of subscribed tables.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_STATISTICS_H
#define PAPPLY_TABLE_STATISTICS_H

#include "datatype/timestamp.h"

#include "parallel_apply.h"

/* In the order of the columns of parallel_apply.conflicts. */
typedef enum PapplyConflictType
{
	PAPPLY_INSERT_EXISTS,
	PAPPLY_UPDATE_ORIGIN_DIFFERS,
	PAPPLY_UPDATE_EXISTS,
	PAPPLY_UPDATE_MISSING,
	PAPPLY_DELETE_ORIGIN_DIFFERS,
	PAPPLY_DELETE_MISSING,
	PAPPLY_MULTIPLE_UNIQUE_CONFLICTS,
	PAPPLY_CONFLICT_TYPES		/* number of the above */
} PapplyConflictType;

/* Bytes kept of a key, including the terminating zero byte. */
#define PAPPLY_CONFLICT_KEY_LENGTH 128

/* The last conflict of a table. */
typedef struct PapplyConflict
{
	PapplyConflictType type;
	TimestampTz at;				/* 0: there was none */
	char		key[PAPPLY_CONFLICT_KEY_LENGTH];	/* "(id)=(1)"; empty if
													 * not known */
} PapplyConflict;

typedef enum PapplyTableCounter
{
	PAPPLY_TABLE_INSERTS,		/* committed changes, while there are writers */
	PAPPLY_TABLE_UPDATES,
	PAPPLY_TABLE_DELETES,
	PAPPLY_TABLE_WAITS,			/* waits for a dependency at a change of the
								 * table */
	PAPPLY_TABLE_WAIT_US,
	PAPPLY_TABLE_RETRIED_LOOKUPS,	/* rows that were looked up again, in turn */
	PAPPLY_TABLE_CONFLICTS,		/* the first PapplyConflictType */
	PAPPLY_TABLE_COUNTERS = PAPPLY_TABLE_CONFLICTS + PAPPLY_CONFLICT_TYPES
} PapplyTableCounter;

/* Further columns are assumed to be published. */
#define PAPPLY_DESCRIBED_COLUMNS 256

/*
 * The publisher's description of a table, by local columns; bit 0 is column 1.
 */
typedef struct PapplyTableDescription
{
	bool		is_known;		/* is there a description? */
	bool		is_full;		/* REPLICA IDENTITY FULL */
	int			natts;			/* of the local table at that time */
	uint8		published[PAPPLY_DESCRIBED_COLUMNS / 8];
	uint8		identity[PAPPLY_DESCRIBED_COLUMNS / 8];
} PapplyTableDescription;

/* Test, or set, a column of published or identity by its bit. */
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

/*
 * What is known of a table.  A restart of the server keeps it; a change of this
 * struct or the next one needs a new version of the file (saved.c).
 */
typedef struct PapplyTableRecord
{
	Oid			dbid;
	Oid			subid;			/* InvalidOid if there is no table */
	Oid			relid;
	PapplyTableDescription description;
	PapplyConflict last_conflict;
} PapplyTableRecord;

/* A copy of that, with its counters. */
typedef struct PapplyTableStatistics
{
	PapplyTableRecord record;
	uint64		counters[PAPPLY_TABLE_COUNTERS];
} PapplyTableStatistics;

/* Result of a search for a table. */
typedef struct PapplyTableHint
{
	Oid			relid;
	uint32		taken;			/* valid until this changes; 0 if never */
	int			place;			/* -1 if there is none */
} PapplyTableHint;

/* For _PG_init. */
extern void papply_table_statistics_request_shmem(void);
extern void papply_table_statistics_init_shmem(void);

/*
 * Start counting for a table of this database's subscription, and store its
 * description.  Returns false if there is no place.  The caller is in a
 * transaction.
 */
extern bool papply_table_statistics_describe(Oid subid, Oid relid,
											 const PapplyTableDescription *description);

/*
 * Add to the counters of a table, and store its last conflict if there was one,
 * if the table has a place.  *hint must be zero at first.  It makes the next
 * call fast if that is for the same table.
 */
extern void papply_table_statistics_add(Oid subid, Oid relid, const uint64 *counts,
										const PapplyConflict *conflict, PapplyTableHint *hint);

/* Is it time to search again for a table that got no place? */
extern bool papply_table_statistics_may_have_place(void);

/* Copy what is known of a table.  Returns false if it has no place. */
extern bool papply_table_statistics_get(Oid subid, Oid relid, PapplyTableStatistics *copy);

/* Copy the n-th place, used or not.  Returns false if there is no such place. */
extern bool papply_table_statistics_get_nth(int n, PapplyTableStatistics *copy);

/* Are some tables not counted because all places are taken? */
extern bool papply_table_statistics_is_full(void);

/*
 * Reset the counters of the tables of a subscription of this database.
 * InvalidOid means all subscriptions, with or without a slot.
 */
extern void papply_table_statistics_reset(Oid subid);

/*
 * Postmaster, at start or exit: load, or return, what is kept of all tables,
 * allocated with palloc.
 */
extern void papply_table_statistics_load(const PapplyTableStatistics *saved, uint32 n);
extern PapplyTableStatistics *papply_table_statistics_save(uint32 *n);

/*** types of conflicts: conflict_type.c ***/

/*
 * Return the type of a conflict of an UPDATE or DELETE: the row is missing, or
 * another origin has written it.
 */
extern PapplyConflictType papply_conflict_type_of(char message_type, bool is_found);

extern const char *papply_conflict_type_name(PapplyConflictType type);

/*
 * Log a missing row, or a row that another origin has written (writer), as
 * PostgreSQL 18 does.  The caller is in a transaction.
 */
extern void papply_conflict_type_log(Oid relid, PapplyConflictType type,
									 const PapplyRowWriter *writer, const char *key);

#endif							/* PAPPLY_TABLE_STATISTICS_H */
