/*-------------------------------------------------------------------------
 * lookup_index.h
 *	  Which index finds the rows of a table?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOOKUP_INDEX_H
#define PAPPLY_LOOKUP_INDEX_H

#include "access/attnum.h"
#include "utils/relcache.h"

struct PapplyTarget;

/*
 * Fill target->lookup, with memory of the current context.  The table must be
 * open, and target->inputs filled.  For each local column, attnums has the
 * number of the published column or -1.
 */
extern void papply_lookup_index_choose(struct PapplyTarget *target,
									   const AttrNumber *attnums);

/*
 * Return the index that finds rows of which all columns are known, for a table
 * without replica identity index or primary key.  InvalidOid means that the
 * whole table must be read.  The table must be open.
 */
extern Oid	papply_lookup_index_for_rows(Relation rel, const AttrNumber *attnums);

/*
 * Has the table a unique or exclusion constraint, or a unique index, other than
 * its replica identity?
 */
extern bool papply_lookup_index_has_other_unique(Relation rel);

#endif							/* PAPPLY_LOOKUP_INDEX_H */
