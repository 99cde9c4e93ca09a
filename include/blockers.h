/*-------------------------------------------------------------------------
 * blockers.h
 *	  Processes that wait for a younger transaction.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_BLOCKERS_H
#define PAPPLY_BLOCKERS_H

/*
 * Interval between checks by a process that does not sleep in commit_order.c.
 */
#define PAPPLY_BLOCKERS_INTERVAL_MS 100

/*
 * To be called once by each process of a pool, before its first wait: set what
 * it checks while it sleeps in commit_order.c.
 */
extern void papply_blockers_begin_checks(void);

/*
 * Check whether the oldest transaction waits for a younger one, and whether
 * local sessions wait for transactions before their turn, unless this process
 * did so within PAPPLY_BLOCKERS_INTERVAL_MS.  Throws
 * PAPPLY_ERRCODE_COMMIT_ORDER_ABORT if they wait for this process.  Makes
 * others roll back that cannot check themselves.  A writer that applies changes
 * does not look for local sessions that wait for itself.  For processes that do
 * not sleep in commit_order.c.
 */
extern void papply_blockers_look_if_due(void);

/*
 * Does a process wait for this one in the lock manager, directly or through
 * others?  For a process without a pool.
 */
extern bool papply_blockers_include_me(int pid);

#endif							/* PAPPLY_BLOCKERS_H */
