/*-------------------------------------------------------------------------
 * dispatch.h
 *	  Turn messages of the publisher into entries of the queue.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DISPATCH_H
#define PAPPLY_DISPATCH_H

#include "fate.h"
#include "message.h"
#include "remote_relation.h"

/* Start with an empty state, for a new pool. */
extern void papply_dispatch_reset(void);

/*
 * Put a message into the queue.  Return TAKEN; HELD if there is no space; or
 * TO_CORE_LOOP if no transaction is open, and it begins none for the queue.
 * begin: what papply_message_parse_first() has got from it; NULL if it begins
 * no transaction, or one is open.
 */
extern PapplyFate papply_dispatch_message(const PapplyMessage *message, const PapplyBegin *begin);

/* Has a transaction in the queue begun, but not ended? */
extern bool papply_dispatch_is_open(void);

/*
 * Return the commit time, on the publisher, of the newest transaction that has
 * begun since the last call; 0 if there is none.
 */
extern TimestampTz papply_dispatch_take_commit_time(void);

/*
 * Must the open transaction be a fallback because one of its messages never
 * fits into the queue?
 */
extern bool papply_dispatch_is_oversize(void);

/*
 * Must changes of a relation (NULL: not known) be left to the core apply loop,
 * because writers do not apply them, or because of what user code has left in
 * a session?
 */
extern bool papply_dispatch_is_native(const PapplyRemoteRelation *rel);

/* Is a transaction open that may be left to the core apply loop (leader_policy.c)? */
extern bool papply_dispatch_may_be_for_leader(void);

/*
 * Note that a writer has applied the open transaction early (in_progress.h),
 * in that place.  The next message is the end of the transaction.
 */
extern void papply_dispatch_mark_in_progress(int place);

/*
 * End the open transaction, which the core apply loop is applying, and whose
 * end the core apply loop got directly.
 */
extern void papply_dispatch_end_direct(XLogRecPtr remote_end_lsn);

#endif							/* PAPPLY_DISPATCH_H */
