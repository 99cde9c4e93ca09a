/*-------------------------------------------------------------------------
 * room: pool
 *
 * blockers.h
 *	  Deadlocks of which the lock manager sees only one half.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_BLOCKERS_H
#define PAPPLY_BLOCKERS_H

/* How often a process looks that does not sleep in commit_order.c. */
#define PAPPLY_BLOCKERS_INTERVAL_MS 100

/*
 * Look whether the oldest transaction waits for a younger one.  If it waits for this
 * process, throws PAPPLY_ERRCODE_OLDER_WINS; if for one that cannot find out itself,
 * all younger ones are told to roll back.
 */
extern void papply_blockers_look(void);

/*
 * Do the same, and look for local sessions that wait (local_waiters.h), unless this process
 * has looked within PAPPLY_BLOCKERS_INTERVAL_MS.  It is for processes that do not sleep in
 * commit_order.c.
 */
extern void papply_blockers_look_if_due(void);

#endif							/* PAPPLY_BLOCKERS_H */
