/*-------------------------------------------------------------------------
 * partition.h
 *	  Which partition does a row belong to?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PARTITION_H
#define PAPPLY_PARTITION_H

#include "target.h"

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

#endif							/* PAPPLY_PARTITION_H */
