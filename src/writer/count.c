/*-------------------------------------------------------------------------
 * count.c
 *	  What a writer has done to each table, until it is added to the
 *	  statistics.
 *
 * Runs in a writer.
 *
 * A row costs one increment in the memory of this process.  The sums are added
 * to shared memory (table_statistics.c), table by table, at the end of a local
 * transaction, after other writers have been released.
 *
 * The table that is counted has the name of the remote relation.  Changes of a
 * partitioned table are counted for that table and not for its partitions,
 * because it is the one that the subscription contains.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "count.h"
#include "pool.h"

static PapplyTarget *counted_targets = NULL;

void
papply_count_add(PapplyTarget *target, PapplyTableCounter counter, uint64 n)
{
	target->counts[counter] += n;
	if (target->is_counted)
		return;
	target->is_counted = true;
	target->next_counted = counted_targets;
	counted_targets = target;
}

void
papply_count_change(PapplyTarget *target, char type)
{
	papply_count_add(target,
					 type == LOGICAL_REP_MSG_INSERT ? PAPPLY_TABLE_INSERTS :
					 type == LOGICAL_REP_MSG_UPDATE ? PAPPLY_TABLE_UPDATES :
					 PAPPLY_TABLE_DELETES, 1);
}

void
papply_count_end_transaction(bool is_committed)
{
	for (PapplyTarget *target = counted_targets; target != NULL; target = target->next_counted)
	{
		uint64	   *counts = target->counts;

		if (!is_committed)
			counts[PAPPLY_TABLE_INSERTS] = counts[PAPPLY_TABLE_UPDATES] =
				counts[PAPPLY_TABLE_DELETES] = counts[PAPPLY_TABLE_MISSING] = 0;
		papply_table_statistics_add(papply_pool->subid, target->local_relid, counts,
									&target->hint);
		memset(counts, 0, sizeof(target->counts));
		target->is_counted = false;
	}
	counted_targets = NULL;
}
