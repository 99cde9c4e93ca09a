/*-------------------------------------------------------------------------
 * origin.h
 *	  The replication origin of a subscription that has a pool.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ORIGIN_H
#define PAPPLY_ORIGIN_H

#include "access/xlogdefs.h"

#include "parallel_apply.h"

/* Part of the pool. */
typedef struct PapplySharedOrigin
{
	PapplyOriginId id;			/* set before writers start */
	XLogRecPtr	lsn;			/* written by the owner of its session */
} PapplySharedOrigin;

/*
 * Take the session of the pool's origin.  Ends this process if the origin was
 * moved since the session was released.
 */
extern void papply_origin_take(void);

/* Release the session for the next process. */
extern void papply_origin_pass_on(void);

/*
 * If the origin is not at lsn, move it back there and report that at elevel.
 * No process of the pool may own the session.
 */
extern void papply_origin_check(PapplyOriginId origin, XLogRecPtr lsn, int elevel);

#endif							/* PAPPLY_ORIGIN_H */
