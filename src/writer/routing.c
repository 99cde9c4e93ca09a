/*-------------------------------------------------------------------------
 * routing.c
 *	  Routing of rows to partitions, by the server's own tuple routing.
 *
 * Runs in a writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "executor/execPartition.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "routing.h"

LogicalRepRelMapEntry *
papply_routing_prepare_partition(PapplyTarget *partition, PapplyTarget *root)
{
	TupleDesc	root_desc = RelationGetDescr(root->rel);
	TupleDesc	desc = RelationGetDescr(partition->rel);
	MemoryContext old_context = MemoryContextSwitchTo(partition->context);
	LogicalRepRelMapEntry *entry;

	partition->from_root = papply_compat_map_columns(root_desc, desc);

	/* not symmetric: only a partition may have missing attributes */
	partition->to_root = partition->from_root ?
		papply_compat_map_columns(desc, root_desc) : NULL;
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
papply_routing_begin(PapplyTarget *root)
{
	MemoryContext old_context = MemoryContextSwitchTo(root->estate->es_query_cxt);
	ModifyTableState *routing = makeNode(ModifyTableState);
	PapplyUserContext user_context;

	routing->ps.state = root->estate;
	routing->operation = CMD_INSERT;
	routing->resultRelInfo = makeNode(ResultRelInfo);
	InitResultRelInfo(routing->resultRelInfo, root->rel, 1, NULL, 0);

	/*
	 * A partition that is being detached concurrently must not be in the set
	 * any more.
	 */
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());

	/*
	 * The partition key may contain functions of the owner, which are called
	 * when it is planned.
	 */
	papply_compat_begin_as_table_owner(root->rel, &user_context);
	routing->mt_partition_tuple_routing = ExecSetupPartitionTupleRouting(root->estate, root->rel);
	papply_compat_end_as_table_owner(&user_context);
	root->routing = routing;
	MemoryContextSwitchTo(old_context);
}

void
papply_routing_end(PapplyTarget *root)
{
	Assert(root->is_open && root->routing != NULL);
	ExecCleanupTupleRouting(root->routing, root->routing->mt_partition_tuple_routing);
	root->routing = NULL;
}

ResultRelInfo *
papply_routing_find(PapplyTarget *root)
{
	ModifyTableState *routing = root->routing;

	return ExecFindPartition(routing, routing->resultRelInfo,
							 routing->mt_partition_tuple_routing, root->remote_slot,
							 root->estate);
}
