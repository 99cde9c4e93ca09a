/*-------------------------------------------------------------------------
 * conflict_type.h
 *	  Types of conflicts, with the names that PostgreSQL 18 gave them.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CONFLICT_TYPE_H
#define PAPPLY_CONFLICT_TYPE_H

#include "datatype/timestamp.h"

#include "compat.h"

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

#endif							/* PAPPLY_CONFLICT_TYPE_H */
