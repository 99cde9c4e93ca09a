/*-------------------------------------------------------------------------
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
 * Make a search key for an open btree, without values.  The caller sets
 * sk_argument of all columns.  The key is allocated in the current memory
 * context, and valid as long as the index is open.
 */
extern BTScanInsert papply_index_key(Relation index);

/*
 * Return the leaf page for the key, or InvalidBlockNumber if the index is
 * empty.  Reads only pages above it.  This is a hint, because the page may be
 * split at any time.
 */
extern BlockNumber papply_index_leaf(Relation rel, Relation index, BTScanInsert key);

/*
 * Read the leaf page.  Returns false if it does not have the key; otherwise
 * *row is the row that the entry points to, which need not be visible.  The
 * page must exist, that is, the index must not have been rebuilt since
 * papply_index_leaf().
 */
extern bool papply_index_row(Relation index, BlockNumber leaf, BTScanInsert key,
							 ItemPointer row);

#endif							/* PAPPLY_INDEX_DESCENT_H */
