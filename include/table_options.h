/*-------------------------------------------------------------------------
 * table_options.h
 *	  Options of tables that users have set.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_OPTIONS_H
#define PAPPLY_TABLE_OPTIONS_H

#include "parallel_apply.h"

/* Options and their values; the first value is the default. */
#define PAPPLY_OPTION_TRIGGERS		"triggers"
#define PAPPLY_TRIGGERS_EXCLUSIVE	"exclusive"
#define PAPPLY_TRIGGERS_PARALLEL	"parallel"

/*
 * In the postmaster: register the provider of SECURITY LABEL FOR
 * parallel_apply.
 */
extern void papply_table_options_init(void);

/* Throw an error unless relid is a table that may have options. */
extern void papply_table_options_check_table(Oid relid);

/*
 * Set a valid option of a table that passes the check above.  Keeps the table
 * locked against changes of rows until the end of the transaction, and may
 * wait for that lock.
 */
extern void papply_table_options_set(Oid relid, const char *option, const char *value);

/*
 * May writers fire the table's triggers in parallel?  The caller is in a
 * transaction.
 */
extern bool papply_table_options_allow_triggers(Oid relid);

/*
 * Remove the options of all tables of this database, with the extension.
 * Returns how many tables had options.
 */
extern int	papply_table_options_remove_all(void);

#endif							/* PAPPLY_TABLE_OPTIONS_H */
