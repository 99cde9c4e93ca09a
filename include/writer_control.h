/*-------------------------------------------------------------------------
 * room: receiver
 *
 * writer_control.h
 *	  Starting, retiring and watching the writers of a pool.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WRITER_CONTROL_H
#define PAPPLY_WRITER_CONTROL_H

#include "parallel_apply.h"

/*
 * Have so many writers; returns how many are running or starting.  Writers
 * above the number leave between transactions.  Warns when the server has no
 * more worker slots, once until the number changes.
 */
extern int	papply_writers_set(int wanted, const char *subname);

/* So many there shall be now: those that are configured, or fewer in quiet times. */
extern int	papply_writers_wanted(void);

/*
 * Look how many writers shall be awake, and, in quiet times, there; is_behind: what
 * was received last is old.  Returns the milliseconds after which it has to be
 * looked at again at the latest, or -1.
 */
extern long papply_writers_adapt(bool is_behind, const char *subname);

/*
 * There are no writers, for another reason: when all are there again it is said
 * that the subscription has recovered.
 */
extern void papply_writers_set_degraded(void);

/*
 * Try again to start what is missing, find those that could not start, and let
 * those leave that have had nothing to do; and the last one if the server needs its
 * worker slot.  Returns how many are running, starting or about to leave.
 */
extern int	papply_writers_check(const char *subname);

/* How many are running, starting or about to leave? */
extern int	papply_writers_running(void);

/* Will the next check let the last one leave, because the server needs its slot? */
extern bool papply_writers_owe_slot(void);

/* Was one missing when they were checked last, for want of a worker slot? */
extern bool papply_writers_are_missing(void);

/*
 * The gate is closed.  Make all of them leave and wait until they are gone;
 * must_hurry: even from the middle of a transaction.
 */
extern void papply_writers_end(bool must_hurry);

#endif							/* PAPPLY_WRITER_CONTROL_H */
