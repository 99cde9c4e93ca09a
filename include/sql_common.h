/*-------------------------------------------------------------------------
 * room: any
 *
 * sql_common.h
 *	  What several SQL functions ask of their arguments.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SQL_COMMON_H
#define PAPPLY_SQL_COMMON_H

#include "fmgr.h"
#include "foreign/foreign.h"

#include "parallel_apply.h"

/*
 * An argument that is a number of writers, or 0 if it is null: inherited.
 * Throws if it is out of range; a notice says that a setting limits it.
 */
extern int	papply_sql_get_writers(FunctionCallInfo fcinfo, int argument);

/* The group of this name; throws if there is none. */
extern ForeignServer *papply_sql_get_group(const char *name);

/*
 * The OID of the subscription of the current database that an argument names;
 * throws if there is none.  Without a lock.
 */
extern Oid	papply_sql_get_subscription(FunctionCallInfo fcinfo, int argument);

/*
 * The same, locked against ALTER, DROP and others of our functions.  Throws unless
 * the user is its owner, and where nothing can be changed.
 */
extern Oid	papply_sql_change_subscription(FunctionCallInfo fcinfo, int argument,
										   const char *function);

/* May the user read all columns of all rows of that table, which exists? */
extern bool papply_sql_may_read(Oid relid);

#endif							/* PAPPLY_SQL_COMMON_H */
