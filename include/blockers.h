/*-------------------------------------------------------------------------
 * blockers.h
 *	  Deadlocks of which the lock manager sees only one half.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_BLOCKERS_H
#define PAPPLY_BLOCKERS_H

/*
 * Interval between checks by a process that does not sleep in commit_order.c.
 */
#define PAPPLY_BLOCKERS_INTERVAL_MS 100

/*
 * Check whether the oldest transaction waits for a younger one.  Throws
 * PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if it waits for this process.  Makes all
 * younger transactions roll back if it waits for a process that cannot check
 * itself.
 */
extern void papply_blockers_look(void);

/*
 * Do the same, and look for local sessions that wait (local_waiters.h), unless
 * this process did so within PAPPLY_BLOCKERS_INTERVAL_MS.  For processes that
 * do not sleep in commit_order.c.
 */
extern void papply_blockers_look_if_due(void);

/*
 * Does a process wait for this one in the lock manager, directly or through
 * others?  For a process without a pool.
 */
extern bool papply_blockers_include_me(int pid);

#endif							/* PAPPLY_BLOCKERS_H */
