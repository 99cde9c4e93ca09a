/*-------------------------------------------------------------------------
 * failed_values.h
 *	  A row of parallel_apply.failed_transactions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAILED_VALUES_H
#define PAPPLY_FAILED_VALUES_H

#include "result_rows.h"
#include "statistics.h"

/*
 * Set the columns of the view, except the name of the subscription.  User data
 * is included only if may_see is true.
 */
extern void papply_failed_set(PapplyRow *row, const PapplyStatistics *statistics, bool may_see);

/*
 * Return the statistics of a subscription whose last transaction failed, and
 * was neither applied nor skipped since.  Throws an error if it is another one.
 */
extern const PapplyStatistics *papply_failed_get(Oid subid);

#endif							/* PAPPLY_FAILED_VALUES_H */
