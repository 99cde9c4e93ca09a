/*-------------------------------------------------------------------------
 * room: pool
 *
 * blockers.h
 *	  Deadlocks of which the lock manager sees only one half.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_BLOCKERS_H
#define PAPPLY_BLOCKERS_H

/*
 * Look whether the oldest transaction waits for a younger one.  If it waits for this
 * process, throws PAPPLY_ERRCODE_OLDER_WINS; if for one that cannot find out itself,
 * all younger ones are told to roll back.
 */
extern void papply_blockers_look(void);

/*
 * The same if the last look was long ago; for one that goes on without a sleep, or has
 * no part in it.
 */
extern void papply_blockers_look_if_due(void);

#endif							/* PAPPLY_BLOCKERS_H */
