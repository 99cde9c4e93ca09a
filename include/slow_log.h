/*-------------------------------------------------------------------------
 * room: pool
 *
 * slow_log.h
 *	  Remote transactions that take long to apply, for the server's log.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SLOW_LOG_H
#define PAPPLY_SLOW_LOG_H

#include "access/xlogdefs.h"

#include "statistics.h"

/* What was applied, in one local transaction. */
typedef struct PapplyApplied
{
	uint64		transactions;
	TransactionId remote_xid;	/* of the last one */
	XLogRecPtr	final_lsn;
	uint64		changes;
	bool		is_native;		/* by the native loop, hence without waits */
	uint64		waited_us[PAPPLY_COUNTERS - PAPPLY_FIRST_TIME]; /* by cause */
} PapplyApplied;

/* Is it wanted?  Then the caller remembers when it began. */
extern bool papply_slow_log_is_on(void);

/* It has been applied: log it if it took too long. */
extern void papply_slow_log_report(const PapplyApplied *applied, int64 began_at);

#endif							/* PAPPLY_SLOW_LOG_H */
