/*-------------------------------------------------------------------------
 * local_waiters.h
 *	  Roll back transactions for which local sessions wait before their turn.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOCAL_WAITERS_H
#define PAPPLY_LOCAL_WAITERS_H

/*
 * Look for local sessions that wait for transactions whose turn has not come.
 * Throws PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if one waits for this writer.
 * Recalls other writers.
 */
extern void papply_local_waiters_look(void);

#endif							/* PAPPLY_LOCAL_WAITERS_H */
