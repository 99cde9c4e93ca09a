/*-------------------------------------------------------------------------
 * target_cache.h
 *	  What writers keep of tables, and when it is no longer valid.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TARGET_CACHE_H
#define PAPPLY_TARGET_CACHE_H

#include "target.h"

/* Return the memory context that targets live in. */
extern MemoryContext papply_target_cache_context(void);

/*
 * Return a target, which may be a new one that has only its key.  partition
 * may be InvalidOid.
 */
extern PapplyTarget *papply_target_cache_get(LogicalRepRelId remote_relid, Oid partition);

/* Return the target of a table, or NULL if there is none. */
extern PapplyTarget *papply_target_cache_find(LogicalRepRelId remote_relid);

/*
 * Note that the range of transactions uses the target.  Call it before opening
 * the target, because its state may have changed.
 */
extern void papply_target_cache_use(PapplyTarget *target);

/* Return the number of changes of schemas, such as renames. */
extern uint32 papply_target_cache_schema_changes(void);

/* Is the range a batch? */
extern bool papply_target_cache_in_batch(void);

/*
 * Return the number of changes of functions and types that targets use, or of
 * the rights to call the functions.
 */
extern uint32 papply_target_cache_definition_changes(void);

/*
 * Drop the partitions of root, none of which may be open, and what is kept of
 * other tables that are no longer valid.
 */
extern void papply_target_cache_forget_partitions(PapplyTarget *root);

#endif							/* PAPPLY_TARGET_CACHE_H */
