/*-------------------------------------------------------------------------
 * room: receiver
 *
 * guess.h
 *	  Guess whether sessions of the publisher wait for flushes.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GUESS_H
#define PAPPLY_GUESS_H

#include "datatype/timestamp.h"

/* How long flushes are deferred if no session seems to wait for them. */
#define PAPPLY_GUESS_HELD_MS 10

/* Does no session seem to wait, so that flushes are deferred? */
extern bool papply_guess_nobody_waits(void);

/* Note that count transactions have been committed since the last call. */
extern void papply_guess_committed(uint64 count, int64 now);

/* Note that deferred flushes are overdue, and are done now. */
extern void papply_guess_end(int64 now);

/* Note that everything is flushed. */
extern void papply_guess_flushed(void);

#endif							/* PAPPLY_GUESS_H */
