/*-------------------------------------------------------------------------
 * partition.c
 *	  Which partition does a row belong to?
 *
 * Runs in a writer.
 *
 * As in the core apply loop, a row is searched for in the partition that the
 * old tuple or key of the message belongs to.  If the new row belongs to
 * another partition, the row is moved (deleted and inserted).  The server's
 * tuple routing finds the partition.  It lives as long as the local
 * transaction, and so do the partitions that it has opened.  Each of them is a
 * target of its own (target.c), with the executor state of its root.
 *
 * The set of partitions is the one at the moment when the routing began, with the
 * root locked and a new snapshot, which decides about a partition that is being
 * detached concurrently.  The lock on the root allows other sessions to attach or
 * detach partitions meanwhile.  No row is misplaced by that.  A partition can be
 * detached only after this transaction has ended.  Attaching one locks the default
 * partition, which would get its rows otherwise, and the constraint of the
 * default partition is checked for each row, including one that is only
 * searched for.  What can still happen is "no partition found", an error after
 * which the second attempt sets up its own routing.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/tupconvert.h"

#include "routing.h"

PapplyTarget *
papply_partition_of_row(PapplyTarget *root)
{
	PapplyTarget *partition = papply_target_open_partition(root, papply_routing_find(root));

	if (partition->from_root != NULL)
		execute_attr_map_slot(partition->from_root, root->remote_slot,
							  partition->remote_slot);
	return partition;
}

PapplyTarget *
papply_partition_to_move_to(PapplyTarget *root, PapplyTarget *partition)
{
	if (partition->to_root != NULL)
		execute_attr_map_slot(partition->to_root, partition->remote_slot,
							  root->remote_slot);
	return papply_partition_of_row(root);
}
