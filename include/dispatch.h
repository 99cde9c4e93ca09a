/*-------------------------------------------------------------------------
 * room: receiver
 *
 * dispatch.h
 *	  From a message of the publisher to an entry of the queue.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DISPATCH_H
#define PAPPLY_DISPATCH_H

#include "message.h"

/* What became of a message. */
typedef enum PapplyDispatchResult
{
	PAPPLY_DISPATCH_QUEUED,		/* it is in the queue, or not needed */
	PAPPLY_DISPATCH_HOLD,		/* no space; offer it again later */
	PAPPLY_DISPATCH_DIRECT,		/* it begins a transaction for the native
								 * loop; drain the pool first */
	PAPPLY_DISPATCH_PASS		/* the native loop may have it at once */
} PapplyDispatchResult;

/* A pool has been created. */
extern void papply_dispatch_reset(void);

/*
 * Put a message (kind byte first) into the queue.  begin_direct is asked at a
 * BEGIN, whether that transaction has to be handed over.  No transaction may be
 * open: catalogs may be read.
 */
extern PapplyDispatchResult papply_dispatch_message(char *message, int length,
													bool (*begin_direct) (XLogRecPtr final_lsn));

/* Is a transaction begun in the queue and not ended? */
extern bool papply_dispatch_is_open(void);

/*
 * Commit time, on the publisher, of the newest transaction that was begun
 * since the last call; 0 if none was.
 */
extern TimestampTz papply_dispatch_take_commit_time(void);

/*
 * Does the open transaction wait to be replayed, since a message of it will
 * never fit?
 */
extern bool papply_dispatch_is_oversize(void);

/* Is a transaction open that may be left to the native loop (lone.c)? */
extern bool papply_dispatch_may_be_lone(void);

/*
 * A writer has applied the open transaction early (early.h), in that place: what comes next is its
 * end.
 */
extern void papply_dispatch_mark_early(int place);

/*
 * The open transaction is being replayed by the native loop, which got its
 * end directly.
 */
extern void papply_dispatch_end_direct(XLogRecPtr remote_end_lsn);

#endif							/* PAPPLY_DISPATCH_H */
