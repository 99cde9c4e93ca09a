/*-------------------------------------------------------------------------
 * room: writer
 *
 * early_source.h
 *	  The changes of a streamed transaction, read from its file.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_EARLY_SOURCE_H
#define PAPPLY_EARLY_SOURCE_H

#include "message.h"
#include "queue.h"

/* Read what this writer has taken (early.h) from its beginning, in a local transaction. */
extern void papply_early_source_begin(void);

/*
 * The next change, as if it were in the queue, valid until the next call.  Sleeps until it is
 * there.  NULL: there is none, the transaction has that number and commit.  Throws if
 * it is not to be applied early any more, what papply_commit_order_sleep() throws, and what
 * reading a file throws.
 */
extern PapplyEntry *papply_early_source_next(uint64 *seqno, PapplyCommit *commit);

#endif							/* PAPPLY_EARLY_SOURCE_H */
