/*-------------------------------------------------------------------------
 * activity.h
 *	  What pg_stat_activity shows of a writer.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ACTIVITY_H
#define PAPPLY_ACTIVITY_H

#include "parallel_apply.h"

/*
 * Show the name of the writer as application_name.  (The setting itself is
 * that of an apply worker, for triggers.)  The name must be shown again after
 * the setting has changed, by a reload or by user code;
 * papply_activity_show(NULL) does that as well.
 */
extern void papply_activity_show_name(void);

/*
 * Show that the writer works on this table, or that it is idle (NULL).  Call
 * it before waiting for the table's lock.  A table is recognized by its
 * pointer, which is only compared.
 */
extern void papply_activity_show(const char *table);

/*
 * Forget the table that is shown, because its label is about to be freed or
 * must be shown again.
 */
extern void papply_activity_forget(void);

#endif							/* PAPPLY_ACTIVITY_H */
