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
 * and target->inputs is filled.
 */
extern void papply_lookup_index_choose(PapplyTarget *target);

#endif							/* PAPPLY_LOOKUP_INDEX_H */
