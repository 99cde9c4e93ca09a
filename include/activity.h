/*-------------------------------------------------------------------------
 * room: writer
 *
 * activity.h
 *	  What pg_stat_activity shows of a writer.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ACTIVITY_H
#define PAPPLY_ACTIVITY_H

#include "parallel_apply.h"

/*
 * Its name, for those who look; the setting is that of a native worker, for triggers.  To be
 * shown again when the setting has changed: by a reload, or by code of the user, after
 * which papply_activity_show(NULL) does it.
 */
extern void papply_activity_show_name(void);

/*
 * It works on that table, which is only compared with the one before; before its
 * lock is waited for.  NULL: on none.
 */
extern void papply_activity_show(const char *table);

/* What was shown is old, or is about to be freed: show the next one anew. */
extern void papply_activity_forget(void);

#endif							/* PAPPLY_ACTIVITY_H */
