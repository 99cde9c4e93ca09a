/*-------------------------------------------------------------------------
 * room: writer
 *
 * target_cache.h
 *	  What writers keep of tables, and when it is not true any more.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TARGET_CACHE_H
#define PAPPLY_TARGET_CACHE_H

#include "target.h"

/* Those below live here. */
extern MemoryContext papply_target_cache_context(void);

/* A target, perhaps a new one, which has nothing but its key; partition: or InvalidOid. */
extern PapplyTarget *papply_target_cache_get(LogicalRepRelId remote_relid, Oid partition);

/* That of a table, if there is one; or NULL. */
extern PapplyTarget *papply_target_cache_find(LogicalRepRelId remote_relid);

/* The range of transactions uses it; before it is opened, as it may have changed. */
extern void papply_target_cache_use(PapplyTarget *target);

/* Counts changes of functions that targets call, or of who may call them. */
extern uint32 papply_target_cache_function_changes(void);

extern bool papply_target_cache_is_partition_of(const PapplyTarget *target,
												const PapplyTarget *root);

/*
 * Forget the partitions of root, of which none is open.  What is kept of other tables
 * that changed, or were dropped, goes, too.
 */
extern void papply_target_cache_forget_partitions(PapplyTarget *root);

#endif							/* PAPPLY_TARGET_CACHE_H */
