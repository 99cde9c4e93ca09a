/*-------------------------------------------------------------------------
 * room: writer
 *
 * lookup_index.h
 *	  Which index finds the rows of a table?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOOKUP_INDEX_H
#define PAPPLY_LOOKUP_INDEX_H

#include "target.h"

/*
 * Fill target->lookup, with memory of the current context; the table is open,
 * and target->inputs is filled.  attnums, for each local column, has the number
 * of the published column or -1.
 */
extern void papply_lookup_index_choose(PapplyTarget *target, const AttrNumber *attnums);

/*
 * The index that finds rows of which all columns are known, where no identity
 * does; InvalidOid: the table is read.  The table is open.
 */
extern Oid	papply_lookup_index_for_rows(Relation rel, const AttrNumber *attnums);

#endif							/* PAPPLY_LOOKUP_INDEX_H */
