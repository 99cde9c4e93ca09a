/*-------------------------------------------------------------------------
 * source.h
 *	  Where the changes that a writer applies come from.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SOURCE_H
#define PAPPLY_SOURCE_H

#include "message.h"
#include "queue.h"

/*
 * Return the next entry of a transaction in the queue, and move *position
 * behind it.  If the entry has not arrived completely, sleeps until it has,
 * and throws what papply_commit_order_sleep() throws.
 */
extern PapplyEntry *papply_source_next(uint64 *position);

/*
 * Begin to read the streamed transaction that this writer has taken
 * (in_progress.h), in a local transaction.  check is called repeatedly while
 * the writer sleeps.  It must accept invalidations, because otherwise the
 * server would have to reset all caches of this process, and may throw an
 * error.
 */
extern void papply_source_begin_in_progress(void (*check) (void));

/*
 * Return the next change, in the form that it would have in the queue, valid
 * until the next call.  Sleeps until it has arrived.  Returns NULL if the
 * transaction has ended; *commit is set then.  Throws an error if the
 * transaction must not be applied in progress any longer, and what
 * papply_commit_order_sleep(), check and reading a file throw.
 */
extern PapplyEntry *papply_source_next_in_progress(PapplyCommit *commit);

/* Free the memory, whether the end was reached or not. */
extern void papply_source_end_in_progress(void);

#endif							/* PAPPLY_SOURCE_H */
