/*-------------------------------------------------------------------------
 * room: receiver
 *
 * guess.h
 *	  Does somebody on the publisher seem to wait for flushes?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GUESS_H
#define PAPPLY_GUESS_H

#include "datatype/timestamp.h"

/* How long flushes are held, if nobody seems to wait for them. */
#define PAPPLY_GUESS_HELD_MS 10

/* Are they to be held? */
extern bool papply_guess_nobody_waits(void);

/* So many transactions have been committed since the last call. */
extern void papply_guess_committed(uint64 count, int64 now);

/* Flushes are held no longer. */
extern void papply_guess_end(int64 now);

/* All is flushed. */
extern void papply_guess_flushed(void);

#endif							/* PAPPLY_GUESS_H */
