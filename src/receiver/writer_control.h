/*-------------------------------------------------------------------------
 * writer_control.h
 *	  Start, retire and watch the writers of a pool.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WRITER_CONTROL_H
#define PAPPLY_WRITER_CONTROL_H

#include "parallel_apply.h"

/* Note which subscriptions, of all databases, need an apply worker. */
extern void papply_writers_note_enabled(const List *subids);

/*
 * Set the number of writers, and return how many are running or starting.
 * Writers above that number exit between transactions.  Warns if the server
 * has no more worker slots, once until all are running.
 */
extern int	papply_writers_set(int wanted);

/*
 * Is there a worker slot for a first writer?  If not, idle writers of other
 * subscriptions exit, and it warns, once until all are running.
 */
extern bool papply_writers_may_start(int wanted);

/*
 * Return the target number of writers: as configured, or fewer in quiet times.
 */
extern int	papply_writers_wanted(void);

/*
 * After quiet times, start as many more as are there, at most those that are
 * configured.  Return false if none is missing, or no worker slot is left: then
 * idle writers of other subscriptions exit.
 */
extern bool papply_writers_add(void);

/*
 * Adapt the number of writers that are awake, and after quiet times the target
 * number, to the load.  is_behind: what was received last is old.  Return the
 * number of milliseconds after which this must be called again, or -1.
 */
extern long papply_writers_adapt(bool is_behind);

/*
 * Note that there are no writers, because a queue could not be made.  When all
 * of them are there, the recovery is logged.
 */
extern void papply_writers_lack_queue(void);

/*
 * Try again to start missing writers, find those that could not start, and
 * retire those that have been idle or are surplus.  Return how many are
 * running, starting or about to exit.
 */
extern int	papply_writers_check(void);

/* Return how many are running, starting or about to exit. */
extern int	papply_writers_running(void);

/*
 * Return how many writers the next check will retire because other workers use
 * the reserve of worker slots.
 */
extern int	papply_writers_surplus(void);

/* Was a writer missing at the last check for lack of a worker slot? */
extern bool papply_writers_are_missing(void);

/*
 * Make all writers exit, and wait until they are gone.  The gate is closed.
 * must_hurry: terminate them, even in the middle of a transaction.
 */
extern void papply_writers_end(bool must_hurry);

#endif							/* PAPPLY_WRITER_CONTROL_H */
