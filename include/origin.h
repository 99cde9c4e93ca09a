/*-------------------------------------------------------------------------
 * room: pool
 *
 * origin.h
 *	  The replication origin of a subscription that has a pool, as it goes round.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ORIGIN_H
#define PAPPLY_ORIGIN_H

/*
 * Take the session of the pool's origin.  Ends this process if somebody has moved the
 * origin since it was passed on.
 */
extern void papply_origin_take(void);

/* Pass it on. */
extern void papply_origin_pass_on(void);

/*
 * While no process of the pool has it: if it is not at lsn, move it back to there, and report
 * that at a level.
 */
extern void papply_origin_check(PapplyOriginId origin, XLogRecPtr lsn, int elevel);

#endif							/* PAPPLY_ORIGIN_H */
