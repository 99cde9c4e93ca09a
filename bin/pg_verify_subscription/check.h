/*-------------------------------------------------------------------------
 * check.h
 *	  Compare tables by pairs of sessions.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_CHECK_H
#define VERIFY_CHECK_H

#include "output.h"
#include "position.h"
#include "ranges.h"
#include "tables.h"

typedef struct CheckOptions
{
	int			jobs;			/* pairs of sessions */
	bool		shows_progress;
	HashKind	hash;
} CheckOptions;

/*
 * Compare all tables without an obstacle, and write what is found.  planner is a session
 * of the publisher that has the snapshot.  Drops the slot of the position as soon as
 * all sessions have the snapshots.
 */
extern void check_tables(Tables *tables, const CheckOptions *options, const Output *output,
						 const Target *targets, Position *position, PGconn *planner);

#endif							/* VERIFY_CHECK_H */
