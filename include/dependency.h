/*-------------------------------------------------------------------------
 * room: receiver
 *
 * dependency.h
 *	  Which transaction wrote a key last?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DEPENDENCY_H
#define PAPPLY_DEPENDENCY_H

#include "parallel_apply.h"

typedef struct PapplyDependency PapplyDependency;

/* 2^bits entries of 8 bytes, in the current memory context. */
extern PapplyDependency *papply_dependency_create(int bits);

/*
 * The greatest sequence number that wrote a key with this hash, or a greater
 * one; PAPPLY_NO_SEQNO if none did.
 */
extern uint64 papply_dependency_find(const PapplyDependency *table, uint64 hash);

/* seqno writes the key; numbers never decrease from call to call. */
extern void papply_dependency_record(PapplyDependency *table, uint64 hash, uint64 seqno);

/* What everything depends on, whatever its keys are. */
extern uint64 papply_dependency_floor(const PapplyDependency *table);

/* Everything after seqno depends on it. */
extern void papply_dependency_record_all(PapplyDependency *table, uint64 seqno);

#endif							/* PAPPLY_DEPENDENCY_H */
