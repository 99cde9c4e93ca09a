/*-------------------------------------------------------------------------
 * speedup.h
 *	  Estimate the speedup by more writers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPEEDUP_H
#define PAPPLY_SPEEDUP_H

#include "parallel_apply.h"

/* Number of pool sizes for which speedup.c makes an estimate. */
#define PAPPLY_SPEEDUPS 10

/*
 * Written by the receiver alone, read by any process without a lock.  Only
 * must_reset is set by any process and cleared by the receiver.
 */
typedef struct PapplySpeedup
{
	bool		must_reset;
	uint64		transactions;	/* number of transactions in the estimate */
	double		work;			/* time that one writer would need for them */
	double		time[PAPPLY_SPEEDUPS];	/* and that papply_speedup_writers()
										 * would */
} PapplySpeedup;

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
