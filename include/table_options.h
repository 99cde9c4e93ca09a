/*-------------------------------------------------------------------------
 * room: pool
 *
 * table_options.h
 *	  What users have declared about tables.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_OPTIONS_H
#define PAPPLY_TABLE_OPTIONS_H

#include "storage/lockdefs.h"
#include "utils/relcache.h"

#include "parallel_apply.h"

/* Columns of the table parallel_apply.table_options. */
#define PAPPLY_TABLE_OPTIONS_RELID	1
#define PAPPLY_TABLE_OPTIONS_OPTION 2
#define PAPPLY_TABLE_OPTIONS_VALUE	3
#define PAPPLY_TABLE_OPTIONS_COLUMNS 3

/* Options and their values; the first value is the default. */
#define PAPPLY_OPTION_TRIGGERS		"triggers"
#define PAPPLY_TRIGGERS_SERIAL		"serial"
#define PAPPLY_TRIGGERS_PARALLEL	"parallel"

/*
 * Open that table; NULL if the extension is not there, or with nowait if
 * somebody has locked it against us.  In a transaction.
 */
extern Relation papply_table_options_open(LOCKMODE lockmode, bool nowait);

/*
 * Is the option of that table set to that value?  In a transaction.  False,
 * too, if the options could not be read without waiting and nowait is set.
 */
extern bool papply_table_options_has(Oid relid, const char *option,
									 const char *value, bool nowait);

#endif							/* PAPPLY_TABLE_OPTIONS_H */
