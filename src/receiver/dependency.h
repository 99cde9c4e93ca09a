/*-------------------------------------------------------------------------
 * dependency.h
 *	  Find the transaction that wrote a key last.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DEPENDENCY_H
#define PAPPLY_DEPENDENCY_H

#include "parallel_apply.h"

typedef struct PapplyDependency PapplyDependency;

/*
 * Create a table of 2^bits entries of 8 bytes, in the current memory context.
 */
extern PapplyDependency *papply_dependency_create(int bits);

/*
 * Return the greatest sequence number that wrote a key with this hash, or a
 * greater number; PAPPLY_NO_SEQNO if there is none.
 */
extern uint64 papply_dependency_find(const PapplyDependency *table, uint64 hash);

/*
 * Record that seqno writes the key.  The number must not decrease from call to
 * call.
 */
extern void papply_dependency_record(PapplyDependency *table, uint64 hash, uint64 seqno);

/* Return the number that every change depends on, whatever its keys are. */
extern uint64 papply_dependency_floor(const PapplyDependency *table);

/* Make everything after seqno depend on it. */
extern void papply_dependency_record_all(PapplyDependency *table, uint64 seqno);

#endif							/* PAPPLY_DEPENDENCY_H */
