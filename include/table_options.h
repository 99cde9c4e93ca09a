/*-------------------------------------------------------------------------
 * room: pool
 *
 * table_options.h
 *	  What users have declared about tables.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_OPTIONS_H
#define PAPPLY_TABLE_OPTIONS_H

#include "parallel_apply.h"

/* Options and their values; the first value is the default. */
#define PAPPLY_OPTION_TRIGGERS		"triggers"
#define PAPPLY_TRIGGERS_EXCLUSIVE	"exclusive"
#define PAPPLY_TRIGGERS_PARALLEL	"parallel"

/* In the postmaster: makes SECURITY LABEL FOR parallel_apply known. */
extern void papply_table_options_init(void);

/* Throws unless relid is a table that may have options. */
extern void papply_table_options_check_table(Oid relid);

/*
 * Sets an option, which must be one with a valid value, of a table that passes
 * the check above.  In a transaction, until whose end it keeps the table locked
 * against changes of rows; may wait for that.
 */
extern void papply_table_options_set(Oid relid, const char *option, const char *value);

/* Is the option of that table set to that value?  In a transaction. */
extern bool papply_table_options_has(Oid relid, const char *option, const char *value);

#endif							/* PAPPLY_TABLE_OPTIONS_H */
