/*-------------------------------------------------------------------------
 * due_flush.h
 *	  Decide when commits are flushed.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DUE_FLUSH_H
#define PAPPLY_DUE_FLUSH_H

#include "connection.h"

/* Called when the stream starts. */
extern void papply_due_flush_set(PapplyFlushes flushes);

/*
 * A session waits for what has been received up to now: flush that as soon as
 * it is committed.  Return true if this may be a request of the publisher for
 * such a flush, and is the first one for that position.
 */
extern bool papply_due_flush_ask(void);

/* Is something committed that will be flushed soon? */
extern bool papply_due_flush_is_expected(void);

/*
 * Flush what is committed, by a writer if possible.  Called from time to time while there
 * is always something to read.
 */
extern void papply_due_flush_regularly(void);

/*
 * Do the same if it is due and no other process does it.  Called when there is
 * nothing to read.  is_slow: transactions come at intervals of many milliseconds.
 * Returns after how many milliseconds a flush may be due; -1: there
 * is nothing to flush, or another process does it.
 */
extern long papply_due_flush_look(bool is_slow);

#endif							/* PAPPLY_DUE_FLUSH_H */
