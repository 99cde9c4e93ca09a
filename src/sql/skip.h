/*-------------------------------------------------------------------------
 * skip.h
 *	  Skip the failing transaction.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SKIP_H
#define PAPPLY_SKIP_H

#include "fmgr.h"

#include "statistics.h"

/*
 * Let the server skip the transaction that the statistics describe, when the
 * local transaction has committed.  Returns the number under which it will be
 * stored, or 0 if it is not to be.  The caller has a snapshot, and has called
 * papply_sql_change_subscription().
 */
extern int64 papply_skip_failed(FunctionCallInfo fcinfo, const PapplyStatistics *statistics,
								bool must_store);

#endif							/* PAPPLY_SKIP_H */
