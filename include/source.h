/*-------------------------------------------------------------------------
 * room: writer
 *
 * source.h
 *	  Where the changes come from that a writer applies.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SOURCE_H
#define PAPPLY_SOURCE_H

#include "message.h"
#include "queue.h"

/*
 * The next entry of a transaction in the queue, from *position, which is moved.  It may
 * still be arriving: sleeps until it is there, and throws what
 * papply_commit_order_sleep() throws.
 */
extern PapplyEntry *papply_source_next(uint64 *position);

/*
 * Read what this writer has taken (early.h) from its beginning, in a local transaction.
 * check is called again and again while it sleeps.  It shall accept invalidations, without
 * which the server would have to reset all caches of this process, and may throw.
 */
extern void papply_source_begin_early(void (*check) (void));

/*
 * The next change, as if it were in the queue, valid until the next call.  Sleeps until it is
 * there.  NULL: there is none, the transaction has ended with that commit.  Throws if
 * it is not to be applied early any more, what papply_commit_order_sleep() and check throw, and
 * what reading a file throws.
 */
extern PapplyEntry *papply_source_next_early(PapplyCommit *commit);

/* Give back the memory that this took, whether the end was reached or not. */
extern void papply_source_end_early(void);

#endif							/* PAPPLY_SOURCE_H */
