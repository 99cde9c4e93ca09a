/*-------------------------------------------------------------------------
 * column_values.h
 *	  Input functions and defaults of a table's columns, prepared once.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COLUMN_VALUES_H
#define PAPPLY_COLUMN_VALUES_H

#include "target.h"

/*
 * Prepare the published columns of a target that is being prepared, in its
 * memory context.  For each local column, attnums has the number of the
 * published one or -1.
 */
extern void papply_values_prepare_inputs(PapplyTarget *target, const AttrMap *attnums);

/*
 * After that, prepare the defaults of the columns that the publisher does not
 * send.
 */
extern void papply_values_prepare_defaults(PapplyTarget *target);

#endif							/* PAPPLY_COLUMN_VALUES_H */
