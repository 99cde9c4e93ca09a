/*-------------------------------------------------------------------------
 * room: writer
 *
 * insert_run.h
 *	  Consecutive INSERTs into one table are applied together.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_INSERT_RUN_H
#define PAPPLY_INSERT_RUN_H

#include "target.h"

/* When a target is prepared: set takes_runs. */
extern void papply_insert_run_prepare(PapplyTarget *target);

/*
 * Before a change of a relation, in that version: apply what is put off, unless
 * the change goes on with it.  Throws whatever applying throws.
 */
extern void papply_insert_run_begin_change(char type, LogicalRepRelId remote_relid,
										   uint32 version);

/* After it: apply what is put off if it is enough. */
extern void papply_insert_run_end_change(void);

/* Where the values of rows that are put off have to be. */
extern MemoryContext papply_insert_run_memory(void);

/*
 * Put off the row in remote_slot of table: root, which takes runs, or the
 * partition of it that the row belongs to.  Checks its constraints.  If the
 * table takes no runs, what is put off is applied, and false returned.
 */
extern bool papply_insert_run_add(PapplyTarget *root, PapplyTarget *table);

/*
 * Apply what is put off, and make it visible to the next command of the
 * transaction.  For whoever is about to sleep, to close a target, or to commit.
 */
extern void papply_insert_run_flush(void);

/* Return the relation whose rows are put off, or being inserted; InvalidOid: none. */
extern LogicalRepRelId papply_insert_run_relation(void);

/* A table is closed, and nothing is put off: give back what is much. */
extern void papply_insert_run_close(PapplyTarget *table);

/* After an abort: forget it. */
extern void papply_insert_run_forget(void);

#endif							/* PAPPLY_INSERT_RUN_H */
