/*-------------------------------------------------------------------------
 * failed_values.h
 *	  A row of parallel_apply.failed_transactions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAILED_VALUES_H
#define PAPPLY_FAILED_VALUES_H

#include "statistics.h"

#define PAPPLY_FAILED_COLUMNS 15

/*
 * Set the columns of the view, except the name of the subscription.  User data
 * is included only if may_see is true.
 */
extern void papply_failed_values(const PapplyStatistics *statistics, bool may_see,
								 Datum *values, bool *nulls);

/*
 * Return the statistics of a subscription whose last transaction failed, and
 * was neither applied nor skipped since.  Throws an error if it is another one.
 */
extern const PapplyStatistics *papply_failed_get(Oid subid);

#endif							/* PAPPLY_FAILED_VALUES_H */
