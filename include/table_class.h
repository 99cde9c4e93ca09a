/*-------------------------------------------------------------------------
 * room: pool
 *
 * table_class.h
 *	  May changes of a table be applied by writers at all?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_CLASS_H
#define PAPPLY_TABLE_CLASS_H

#include "access/attmap.h"
#include "utils/relcache.h"

#include "parallel_apply.h"

/*
 * NULL if the pool may apply changes to rel in parallel, else why not (a
 * phrase for messages).  attnums, for each local column, has the number of the
 * published column or -1; NULL for a partition, whose rows get the defaults of
 * the root.  Of a partitioned table only itself is looked at: a writer asks
 * for each partition when a row belongs to it.  In a transaction; rel is open.
 */
extern const char *papply_table_why_native(Relation rel, const AttrMap *attnums);

#endif							/* PAPPLY_TABLE_CLASS_H */
