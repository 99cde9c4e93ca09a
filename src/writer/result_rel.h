/*-------------------------------------------------------------------------
 * result_rel.h
 *	  The executor's state for changes of a table that is open.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RESULT_REL_H
#define PAPPLY_RESULT_REL_H

#include "target.h"

/*
 * May triggers fire when a row is changed?  If user code has set another
 * session_replication_role, ordinary triggers may.
 */
extern bool papply_result_rel_fires_triggers(const PapplyTarget *target);

/*
 * Use the state that tuple routing has made for target, a partition of root.
 * root's triggers decide, because those of its partitions are among them.
 */
extern void papply_result_rel_use(PapplyTarget *target, const PapplyTarget *root,
								  ResultRelInfo *result_rel);

/*
 * Return the state for INSERT, or that for UPDATE and DELETE, with the indexes
 * open.  The target must not be partitioned.
 */
extern ResultRelInfo *papply_result_rel_insert(PapplyTarget *target);
extern ResultRelInfo *papply_result_rel_update(PapplyTarget *target);

#endif							/* PAPPLY_RESULT_REL_H */
