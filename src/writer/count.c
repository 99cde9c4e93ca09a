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

#include "utils/timestamp.h"

#include "count.h"
#include "pool.h"
#include "text.h"

static PapplyTarget *counted_targets = NULL;

void
papply_count_add(PapplyTarget *target, PapplyTableCounter counter, uint64 n)
{
	Assert(counter < PAPPLY_TABLE_COUNTERS && !OidIsValid(target->key.partition));
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
papply_count_conflict(PapplyTarget *target, PapplyConflictType type, const char *key)
{
	papply_count_add(target, PAPPLY_TABLE_CONFLICTS + type, 1);
	target->last_conflict.type = type;
	target->last_conflict.at = GetCurrentTimestamp();
	papply_text_copy(target->last_conflict.key, key, sizeof(target->last_conflict.key));
}

/* Drop what counts only if the transaction is committed. */
static void
forget_changes(PapplyTarget *target)
{
	uint64	   *counts = target->counts;

	counts[PAPPLY_TABLE_INSERTS] = counts[PAPPLY_TABLE_UPDATES] = counts[PAPPLY_TABLE_DELETES] = 0;
	memset(&counts[PAPPLY_TABLE_CONFLICTS], 0, sizeof(uint64) * PAPPLY_CONFLICT_TYPES);
	target->last_conflict.at = 0;
}

void
papply_count_end_transaction(bool is_committed)
{
	for (PapplyTarget *target = counted_targets; target != NULL; target = target->next_counted)
	{
		if (!is_committed)
			forget_changes(target);
		papply_table_statistics_add(papply_pool->subid, target->local_relid, target->counts,
									&target->last_conflict, &target->hint);
		memset(target->counts, 0, sizeof(target->counts));
		target->last_conflict.at = 0;
		target->is_counted = false;
	}
	counted_targets = NULL;
}
