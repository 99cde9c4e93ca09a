/*-------------------------------------------------------------------------
 * wait.h
 *	  Poll what an apply worker does.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WAIT_H
#define PAPPLY_WAIT_H

#define PAPPLY_MAX_NAP_MS 50

/*
 * Sleep for a moment, at most for that many milliseconds, then take notice of
 * catalog changes.  The nap, 0 before the first one, grows up to PAPPLY_MAX_NAP_MS.
 * Throws an error if the session is interrupted.
 */
extern void papply_wait_nap(long *nap_ms, long max_ms);

#endif							/* PAPPLY_WAIT_H */
