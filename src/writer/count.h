/*-------------------------------------------------------------------------
 * count.h
 *	  What a writer has done to each table, until it is added to the statistics.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COUNT_H
#define PAPPLY_COUNT_H

#include "target.h"

/* Count a change of this kind (LOGICAL_REP_MSG_...) that has been applied. */
extern void papply_count_change(PapplyTarget *target, char type);

/* Add n to a counter of the target, which must not be a partition. */
extern void papply_count_add(PapplyTarget *target, PapplyTableCounter counter, uint64 n);

/*
 * Count a conflict of the target, which must not be a partition, and remember
 * the key of its row.
 */
extern void papply_count_conflict(PapplyTarget *target, PapplyConflictType type,
								  const char *key);

/*
 * Add the counts at the end of the local transaction.  If it was rolled back,
 * its changes and conflicts do not count, but everything else does.
 */
extern void papply_count_end_transaction(bool is_committed);

#endif							/* PAPPLY_COUNT_H */
