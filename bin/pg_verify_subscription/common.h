/*-------------------------------------------------------------------------
 * common.h
 *	  The state that both servers have in common while tables are compared.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_COMMON_H
#define VERIFY_COMMON_H

#include "position.h"
#include "table.h"
#include "tables.h"

typedef struct Common
{
	const Target *targets;		/* by Side, as are the next */
	PGconn	   *sessions[SIDES];
	Subscription *subscription;
	Tables	   *tables;
	Position	position;
	double		began_ms;		/* when its snapshots were taken */
	double		longest_ms;		/* for which snapshots have been held */
} Common;

/*
 * Take snapshots of both servers that show the same transactions, and end those that are
 * held.  The sessions are in transactions that have the new snapshots then, and obstacles of
 * tables are noted.  Others can join until close_common().  idle are other sessions of both
 * sides, outside of transactions, which keep no lock of what they look up.
 */
extern void take_common(Common *common, PGconn **idle);

/* Begin a transaction with the snapshot of that side. */
extern void join_common(const Common *common, PGconn *session, Side side);

/* Give back what is needed only for others to join. */
extern void close_common(Common *common);

/* End the transactions of the sessions. */
extern void end_common(Common *common);

#endif							/* VERIFY_COMMON_H */
