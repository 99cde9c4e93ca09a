/*-------------------------------------------------------------------------
 * room: pool
 *
 * awake.h
 *	  How many writers are awake at a time.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_AWAKE_H
#define PAPPLY_AWAKE_H

#include "pool.h"

/* What a writer's changes do with storage. */
typedef enum PapplyStorage
{
	PAPPLY_STORAGE_FAST = 0,	/* nothing is read, or without a wait */
	PAPPLY_STORAGE_AHEAD,		/* waits are hidden by reading ahead */
	PAPPLY_STORAGE_SLOW			/* the writer waits */
} PapplyStorage;

/*** verbs of writers ***/

/* This writer is there, and awake; or it has gone. */
extern void papply_awake_begin(void);
extern void papply_awake_end(void);

/* Are more writers awake than may be?  This one had better sleep then. */
extern bool papply_awake_is_surplus(void);

/* Is another writer asleep, who could go on instead of this one? */
extern bool papply_awake_has_substitute(void);

/*
 * Sleep until woken, unless there is something to claim for this writer, or until
 * the latch is set.  Returns false after timeout_ms; -1 for never.
 */
extern bool papply_awake_sleep(long timeout_ms);

/* Between two transactions: what the last ones did. */
extern void papply_awake_set_storage(PapplyStorage storage);

/*** verbs of anybody ***/

/* Wake a sleeping writer; false if none sleeps, or enough are awake. */
extern bool papply_awake_wake_one(void);

/* The same, however many are awake: for something else than applying. */
extern bool papply_awake_wake_spare(void);

/* So many writers share what there is to apply. */
extern int	papply_awake_sharing(void);

/*** verbs of the receiver ***/

/* Do writers hide waits for storage by reading ahead? */
extern bool papply_awake_reads_ahead(void);

/* A pool begins. */
extern void papply_awake_reset(void);

/*
 * Look how many shall be awake; is_behind: what was received last is old.  Returns
 * the milliseconds after which it has to be looked at again at the latest, because
 * there is more to apply than those who are awake have claimed; or -1.
 */
extern long papply_awake_adjust(bool is_behind);

/* All are awake, more might be, and more are configured than are wanted. */
extern bool papply_awake_is_short(void);

#endif							/* PAPPLY_AWAKE_H */
