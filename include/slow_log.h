/*-------------------------------------------------------------------------
 * slow_log.h
 *	  Log remote transactions that take long to apply.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SLOW_LOG_H
#define PAPPLY_SLOW_LOG_H

#include "access/xlogdefs.h"

#include "statistics.h"

/* What was applied in one local transaction. */
typedef struct PapplyApplied
{
	uint64		transactions;
	TransactionId remote_xid;	/* of the last one */
	XLogRecPtr	final_lsn;
	uint64		changes;
	bool		is_native;		/* by the core apply loop, which waits only
								 * for locks */
	uint64		waited_us[PAPPLY_COUNTERS - PAPPLY_FIRST_TIME]; /* by cause */
} PapplyApplied;

/* Is the log enabled?  Then the caller should note the start time. */
extern bool papply_slow_log_is_on(void);

/*
 * Log what was applied if it took too long.  began_at is a papply_clock_now().
 */
extern void papply_slow_log_report(const PapplyApplied *applied, int64 began_at);

#endif							/* PAPPLY_SLOW_LOG_H */
