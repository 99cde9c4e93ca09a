/*-------------------------------------------------------------------------
 * room: writer
 *
 * count.h
 *	  What a writer has done to each table, until it is added to the statistics.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COUNT_H
#define PAPPLY_COUNT_H

#include "target.h"

/* A change of that kind (LOGICAL_REP_MSG_…) has been applied. */
extern void papply_count_change(PapplyTarget *target, char type);

/* Add to one of the counters of the target, which is no partition. */
extern void papply_count_add(PapplyTarget *target, PapplyTableCounter counter, uint64 n);

/*
 * The local transaction has been committed, or not: then its changes do not
 * count, but what else happened does.
 */
extern void papply_count_end_transaction(bool is_committed);

#endif							/* PAPPLY_COUNT_H */
