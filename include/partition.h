/*-------------------------------------------------------------------------
 * room: writer
 *
 * partition.h
 *	  Which partition does a row belong to?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PARTITION_H
#define PAPPLY_PARTITION_H

#include "target.h"

/*
 * For target.c.  Fill the column maps of a partition, which is open, as its
 * root is; returns what the server's map says of it (localrel, attrmap,
 * updatable, index), good until the next call.
 */
extern LogicalRepRelMapEntry *papply_partition_prepare(PapplyTarget *partition,
													   PapplyTarget *root);

/*
 * For target.c.  Routing of rows, as long as the target is open; the partitions
 * that were opened are closed with it.
 */
extern void papply_partition_begin_routing(PapplyTarget *root);
extern void papply_partition_end_routing(PapplyTarget *root);

/*
 * The partition that the row in root->remote_slot belongs to; its remote_slot
 * has the row.  Throws if there is none, or none that a writer may change.
 */
extern PapplyTarget *papply_partition_of_row(PapplyTarget *root);

/* May the row in partition->remote_slot be stored there? */
extern bool papply_partition_accepts_row(PapplyTarget *partition);

/*
 * The partition that the row in partition->remote_slot belongs to, which is
 * another one; as papply_partition_of_row().
 */
extern PapplyTarget *papply_partition_to_move_to(PapplyTarget *root,
												 PapplyTarget *partition);

#endif							/* PAPPLY_PARTITION_H */
