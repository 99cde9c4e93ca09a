/*-------------------------------------------------------------------------
 * speedup.h
 *	  Estimate the speedup by more writers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPEEDUP_H
#define PAPPLY_SPEEDUP_H

#include "pool.h"

/* Start again, with no previous transaction. */
extern void papply_speedup_reset(void);

/*
 * Bring the estimate in *speedup up to date with the next complete
 * transaction.  Its number seqno is one more than the last time.  It depends
 * on that older transaction (PAPPLY_NO_SEQNO: on none) and has that number of
 * changes.
 */
extern void papply_speedup_add(PapplySpeedup *speedup, uint64 seqno, uint64 dependency,
							   uint64 changes);

/* Return the number of writers of the n-th estimate, from 0. */
extern int	papply_speedup_writers(int n);

#endif							/* PAPPLY_SPEEDUP_H */
