/*-------------------------------------------------------------------------
 * sql_common.h
 *	  What several SQL functions use: checks of arguments, waits.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SQL_COMMON_H
#define PAPPLY_SQL_COMMON_H

#include "fmgr.h"
#include "foreign/foreign.h"

#include "parallel_apply.h"

/*
 * Throw an error if an argument is null.  In a message, "what" is followed by "must not
 * be null".
 */
extern void papply_sql_refuse_null(FunctionCallInfo fcinfo, int argument, const char *what);

/*
 * Throw an error unless a procedure has been called outside of a transaction
 * block, before the transaction has changed anything, and may change something.
 */
extern void papply_sql_begin_procedure(FunctionCallInfo fcinfo, const char *procedure);

/* Return the first argument, the name of a group.  Throws an error if it is null. */
extern const char *papply_sql_get_group_name(FunctionCallInfo fcinfo);

/*
 * Return an argument that is a number of writers, or 0 (inherited) if it is
 * null.  Throws an error if it is out of range.  Issues a NOTICE if a setting
 * limits it.
 */
extern int	papply_sql_get_writers(FunctionCallInfo fcinfo, int argument);

/* Return the group of this name.  Throws an error if there is none. */
extern ForeignServer *papply_sql_get_group(const char *name);

/*
 * Return the OID of the subscription of the current database that an argument
 * names, without locking it.  Throws an error if there is none.
 */
extern Oid	papply_sql_get_subscription(FunctionCallInfo fcinfo, int argument);

/*
 * The same, locked against ALTER, DROP and our other functions.  Throws an
 * error if the user is not the owner, or in a read-only transaction or recovery.
 */
extern Oid	papply_sql_change_subscription(FunctionCallInfo fcinfo, int argument,
										   const char *function);

/*
 * Can the user see the state of this subscription?  Its owner can, and members
 * of pg_read_all_stats, as pg_monitor is.
 */
extern bool papply_sql_may_see(Oid subid);

/* Throw an error if the user cannot. */
extern void papply_sql_check_may_see(Oid subid);

/*
 * Return the subscriptions of this database that exist, have a slot in shared
 * memory, and can be seen by the user.  Views read each of them by its OID.
 * Its slot may be gone by then.
 */
extern List *papply_sql_visible_subscriptions(void);

/* Throw an error unless the user owns the subscription. */
extern void papply_sql_check_owner(Oid subid);

/* Return a table, or InvalidOid if there is none of that name. */
extern Oid	papply_sql_find_table(const char *schema, const char *name);

/*
 * Can the user read all columns of all rows of this table?  If there is none
 * (InvalidOid), only superusers may know what was to be changed there.
 */
extern bool papply_sql_may_read(Oid relid);

/*
 * The same of data that a subscription has noted or stored under the name of a
 * table.  If the table was renamed or dropped since, another one may have got its
 * name.  The subscription contains that one only if its owner wants that.
 */
extern bool papply_sql_may_see_data(Oid subid, const char *schema, const char *name);

/*** version.c ***/

/* Return the version of the extension in the current database, or "none". */
extern const char *papply_version_installed(void);

/*
 * Add an errhint() on what to do if SQL objects of this version do not match
 * the library.
 */
extern int	papply_version_hint(const char *sql_version);

/*** wait.c ***/

#define PAPPLY_MAX_NAP_MS 50

/*
 * Sleep for a moment, at most for that many milliseconds, then take notice of
 * catalog changes.  The nap, 0 before the first one, grows up to PAPPLY_MAX_NAP_MS.
 * Throws an error if the session is interrupted.
 */
extern void papply_wait_nap(long *nap_ms, long max_ms);

#endif							/* PAPPLY_SQL_COMMON_H */
