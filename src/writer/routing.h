/*-------------------------------------------------------------------------
 * routing.h
 *	  Routing of rows to partitions, by the server's own tuple routing.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROUTING_H
#define PAPPLY_ROUTING_H

#include "target.h"

/*
 * Fill the column maps of a partition; it and its root must be
 * open.  Returns its entry in the server's map (localrel, attrmap, updatable,
 * index), which is valid until the next call.
 */
extern LogicalRepRelMapEntry *papply_routing_prepare_partition(PapplyTarget *partition,
															   PapplyTarget *root);

/*
 * Begin and end the routing of rows, which lasts as long as the
 * target is open.  Ending it also closes the partitions that were opened.
 */
extern void papply_routing_begin(PapplyTarget *root);
extern void papply_routing_end(PapplyTarget *root);

/*
 * Return the table of the partition that the row in root->remote_slot belongs
 * to.  Throws an error if there is none.
 */
extern ResultRelInfo *papply_routing_find(PapplyTarget *root);

/*** partition.c ***/

/*
 * Return the partition that the row in root->remote_slot belongs to; its
 * remote_slot has the row.  Throws an error if there is none, or none that a
 * writer may change.
 */
extern PapplyTarget *papply_partition_of_row(PapplyTarget *root);

/*
 * Return the partition that the row in partition->remote_slot belongs to,
 * which must be another one.  See papply_partition_of_row().
 */
extern PapplyTarget *papply_partition_to_move_to(PapplyTarget *root,
												 PapplyTarget *partition);

#endif							/* PAPPLY_ROUTING_H */
