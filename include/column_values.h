/*-------------------------------------------------------------------------
 * room: writer
 *
 * column_values.h
 *	  What makes the values of a row, prepared once for a table.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COLUMN_VALUES_H
#define PAPPLY_COLUMN_VALUES_H

#include "target.h"

/*
 * While a target is prepared, in its memory context.  First the published columns:
 * attnums, for each local column, has the number of the published one or -1.
 */
extern void papply_values_prepare_inputs(PapplyTarget *target, const AttrMap *attnums);

/* Then the defaults of those that the publisher does not send. */
extern void papply_values_prepare_defaults(PapplyTarget *target);

#endif							/* PAPPLY_COLUMN_VALUES_H */
