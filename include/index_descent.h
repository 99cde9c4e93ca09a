/*-------------------------------------------------------------------------
 * room: writer
 *
 * index_descent.h
 *	  Where a key is in a btree, found without reading its leaf page.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_INDEX_DESCENT_H
#define PAPPLY_INDEX_DESCENT_H

#include "access/nbtree.h"
#include "storage/itemptr.h"

#include "parallel_apply.h"

/*
 * A key without values, for a btree that is open; the caller sets sk_argument of
 * all the columns.  In the current memory context, valid while the index is
 * open.
 */
extern BTScanInsert papply_index_key(Relation index);

/*
 * The leaf page that has the key; InvalidBlockNumber if there is none.  Only
 * pages above it are read.  A hint: it may have been split meanwhile.
 */
extern BlockNumber papply_index_leaf(Relation rel, Relation index, BTScanInsert key);

/*
 * Reads that page; false if the key is not there, else the row that it leads to,
 * which need not be visible.  The page exists: the index has not been rebuilt
 * since.
 */
extern bool papply_index_row(Relation index, BlockNumber leaf, BTScanInsert key,
							 ItemPointer row);

#endif							/* PAPPLY_INDEX_DESCENT_H */
