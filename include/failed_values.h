/*-------------------------------------------------------------------------
 * room: pool
 *
 * failed_values.h
 *	  A row of parallel_apply.failed_transactions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAILED_VALUES_H
#define PAPPLY_FAILED_VALUES_H

#include "statistics.h"

#define PAPPLY_FAILED_COLUMNS 15

/* The columns of the view but for the name of the subscription; without data if it may not be seen. */
extern void papply_failed_values(const PapplyStatistics *statistics, bool may_see,
								 Datum *values, bool *nulls);

#endif							/* PAPPLY_FAILED_VALUES_H */
