/*-------------------------------------------------------------------------
 * batch.h
 *	  How many transactions a writer claims at a time.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_BATCH_H
#define PAPPLY_BATCH_H

/* Record the time that a transaction took, without waits for other writers. */
extern void papply_batch_note_time(double us);

/* Return the maximum number of transactions to claim at once. */
extern int	papply_batch_max(void);

/*
 * Call before a claim.  Sleeps for a moment if another writer should claim
 * first.
 */
extern void papply_batch_leave_to_others(void);

#endif							/* PAPPLY_BATCH_H */
