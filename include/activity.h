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
 * It works on that table, which is only compared with the one before; before its
 * lock is waited for.  NULL: on none.
 */
extern void papply_activity_show(const char *table);

/* What was shown is old, or is about to be freed: show the next one anew. */
extern void papply_activity_forget(void);

#endif							/* PAPPLY_ACTIVITY_H */
