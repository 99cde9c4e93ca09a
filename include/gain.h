/*-------------------------------------------------------------------------
 * room: receiver
 *
 * gain.h
 *	  What would more writers gain?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GAIN_H
#define PAPPLY_GAIN_H

#include "pool.h"

/* Begin anew; the next *gain is all zero. */
extern void papply_gain_reset(void);

/*
 * The next transaction is complete: seqno is one more than the last time.  It
 * depends on that older one (PAPPLY_NO_SEQNO: on none) and has so many changes.
 * The estimate in *gain is brought up to date.
 */
extern void papply_gain_add(PapplyGain *gain, uint64 seqno, uint64 dependency, uint64 changes);

/* The number of writers that the n-th estimate is for, from 0. */
extern int	papply_gain_writers(int n);

#endif							/* PAPPLY_GAIN_H */
