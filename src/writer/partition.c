/*-------------------------------------------------------------------------
 * partition.c
 *	  Which partition does a row belong to?
 *
 * Runs in a writer.
 *
 * As in the native loop (PostgreSQL's own apply loop), a row is searched for
 * in the partition that the old tuple or key of the message belongs to.  If
 * the new row belongs to another partition, the row is moved (deleted and
 * inserted).  The server's tuple routing finds the partition.  It lives as
 * long as the local transaction, and so do the partitions that it has opened.
 * Each of them is a target of its own (target.c), with the executor state of
 * its root.
 *
 * The set of partitions is the one at the moment when the routing began.  The
 * lock on the root allows other sessions to attach or detach partitions
 * meanwhile.  No row is misplaced by that.  A partition can be detached only
 * after this transaction has ended.  Attaching one locks the default
 * partition, which would get its rows otherwise, and the constraint of the
 * default partition is checked for each row, including one that is only
 * searched for.  What can still happen is "no partition found", an error after
 * which the second attempt sets up its own routing.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/tupconvert.h"
#include "executor/execPartition.h"
#include "nodes/makefuncs.h"
#include "utils/rel.h"

#include "partition.h"

typedef struct PapplyRouting
{
	ModifyTableState *state;
	ResultRelInfo *root_rel;
	PartitionTupleRouting *tuples;
} PapplyRouting;

/* Return the inverse of a map from a root. */
static AttrMap *
invert_map(const AttrMap *from_root, int root_columns)
{
	AttrMap    *to_root = make_attrmap(root_columns);

	for (int i = 0; i < from_root->maplen; i++)
		if (from_root->attnums[i] > 0)
			to_root->attnums[from_root->attnums[i] - 1] = i + 1;
	return to_root;
}

LogicalRepRelMapEntry *
papply_partition_prepare(PapplyTarget *partition, PapplyTarget *root)
{
	TupleDesc	root_desc = RelationGetDescr(root->rel);
	MemoryContext old_context = MemoryContextSwitchTo(partition->context);
	LogicalRepRelMapEntry *entry;

	partition->from_root = papply_compat_map_columns(root_desc,
													 RelationGetDescr(partition->rel));
	partition->to_root = partition->from_root ?
		invert_map(partition->from_root, root_desc->natts) : NULL;
	MemoryContextSwitchTo(old_context);

	/*
	 * The server keeps one remote relation for each partition, but changes
	 * may arrive under the root and under a partition in between.  So make it
	 * forget the other one, with what it has allocated for it.
	 */
	entry = logicalrep_partition_open(root->entry, partition->rel, partition->from_root);
	if (entry->remoterel.remoteid != root->key.remote_relid)
	{
		LogicalRepRelation other = {.remoteid = entry->remoterel.remoteid};

		logicalrep_partmap_reset_relmap(&other);
		entry = logicalrep_partition_open(root->entry, partition->rel, partition->from_root);
	}
	entry->localrelvalid = false;	/* build it again at the next call */
	return entry;
}

void
papply_partition_begin_routing(PapplyTarget *root)
{
	MemoryContext old_context = MemoryContextSwitchTo(root->estate->es_query_cxt);
	PapplyRouting *routing = palloc(sizeof(PapplyRouting));
	PapplyUserContext user_context;

	routing->root_rel = makeNode(ResultRelInfo);
	InitResultRelInfo(routing->root_rel, root->rel, 1, NULL, 0);
	routing->state = makeNode(ModifyTableState);
	routing->state->ps.state = root->estate;
	routing->state->operation = CMD_INSERT;
	routing->state->resultRelInfo = routing->root_rel;

	/*
	 * The partition key may contain functions of the owner, which are called
	 * when it is planned.
	 */
	papply_compat_begin_as_table_owner(root->rel, &user_context);
	routing->tuples = ExecSetupPartitionTupleRouting(root->estate, root->rel);
	papply_compat_end_as_table_owner(&user_context);
	root->routing = routing;
	MemoryContextSwitchTo(old_context);
}

void
papply_partition_end_routing(PapplyTarget *root)
{
	ExecCleanupTupleRouting(root->routing->state, root->routing->tuples);
	root->routing = NULL;
}

PapplyTarget *
papply_partition_of_row(PapplyTarget *root)
{
	PapplyRouting *routing = root->routing;
	ResultRelInfo *found = ExecFindPartition(routing->state, routing->root_rel,
											 routing->tuples, root->remote_slot,
											 root->estate);
	PapplyTarget *partition = papply_target_open_partition(root, found);

	if (partition->from_root != NULL)
		execute_attr_map_slot(partition->from_root, root->remote_slot,
							  partition->remote_slot);
	return partition;
}

bool
papply_partition_accepts_row(PapplyTarget *partition)
{
	return ExecPartitionCheck(partition->insert_rel, partition->remote_slot,
							  partition->estate, false);
}

PapplyTarget *
papply_partition_to_move_to(PapplyTarget *root, PapplyTarget *partition)
{
	PapplyTarget *other;

	if (partition->to_root != NULL)
		execute_attr_map_slot(partition->to_root, partition->remote_slot,
							  root->remote_slot);
	other = papply_partition_of_row(root);
	if (other == partition)
		elog(ERROR, "row belongs to partition \"%s\" although it violates its constraint",
			 RelationGetRelationName(partition->rel));
	return other;
}
