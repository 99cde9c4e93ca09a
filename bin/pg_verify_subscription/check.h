/*-------------------------------------------------------------------------
 * check.h
 *	  Compare tables by pairs of sessions.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_CHECK_H
#define VERIFY_CHECK_H

#include "common.h"
#include "output.h"
#include "ranges.h"

typedef struct CheckOptions
{
	int			jobs;			/* pairs of sessions */
	int			max_rate;		/* rows per second; 0: no limit */
	double		chunk_ms;		/* after which a new common state is taken; 0:
								 * never */
	bool		shows_progress;
	HashKind	hash;
} CheckOptions;

/* Compare all tables without an obstacle, and write what is found. */
extern void check_tables(Common *common, const CheckOptions *options, const Output *output);

#endif							/* VERIFY_CHECK_H */
