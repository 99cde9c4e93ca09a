/*-------------------------------------------------------------------------
 * insert_run.h
 *	  INSERTs into a table are applied together.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_INSERT_RUN_H
#define PAPPLY_INSERT_RUN_H

#include "replication_role.h"
#include "target.h"

/* Set takes_runs of a target that is being prepared. */
extern void papply_insert_run_prepare(PapplyTarget *target);

/* Are INSERTs into the table put off? */
static inline bool
papply_insert_run_takes(const PapplyTarget *table)
{
	return table->takes_runs && papply_role_is_replica();
}

/*
 * Has the table no code that could observe the order in which rows are
 * changed?  Its partitions may still have constraints that read other rows;
 * the documentation warns of these.
 */
static inline bool
papply_insert_run_is_plain(const PapplyTarget *table)
{
	return table->state == PAPPLY_TARGET_READY && papply_insert_run_takes(table);
}

/*
 * Call before a change of this type of a table.  Applies what is put off,
 * unless the change may precede it, or may be put off as well.  Throws
 * whatever applying throws.
 */
extern void papply_insert_run_begin_change(char type, const PapplyTarget *table);

/* Call after the change.  Applies what is put off if it is enough. */
extern void papply_insert_run_end_change(void);

/* Return the memory context for the values of rows that are put off. */
extern MemoryContext papply_insert_run_memory(void);

/*
 * Put off the row in remote_slot of table, after checking its constraints.
 * table is root, which takes runs, or the partition of root that the row
 * belongs to.  If table takes no runs, apply what is put off and return false.
 */
extern bool papply_insert_run_add(PapplyTarget *root, PapplyTarget *table);

/*
 * Apply what is put off, and make it visible to the next command of the
 * transaction.  Call this before a wait for a dependency, before closing a
 * target, and before the commit.
 */
extern void papply_insert_run_flush(void);

/*
 * Return the target whose rows that were put off are being inserted, or NULL
 * if there is none.
 */
extern const PapplyTarget *papply_insert_run_inserting(void);

/*
 * Call when a table is closed and nothing is put off.  Frees slots if there
 * are many.
 */
extern void papply_insert_run_close(PapplyTarget *table);

/* Forget what is put off, after an abort. */
extern void papply_insert_run_forget(void);

#endif							/* PAPPLY_INSERT_RUN_H */
