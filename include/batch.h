/*-------------------------------------------------------------------------
 * room: writer
 *
 * batch.h
 *	  How many transactions a writer claims at a time.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_BATCH_H
#define PAPPLY_BATCH_H

/* One has been applied, in so many microseconds without waits for others. */
extern void papply_batch_note_time(double us);

/* So many shall be claimed at most. */
extern int	papply_batch_max(void);

/* Called before a claim: sleeps for a moment if somebody else had better do it. */
extern void papply_batch_leave_to_others(void);

#endif							/* PAPPLY_BATCH_H */
