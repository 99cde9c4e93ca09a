/*-------------------------------------------------------------------------
 * store.h
 *	  Store transactions that are skipped.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STORE_H
#define PAPPLY_STORE_H

#include "replication/worker_internal.h"

#include "message.h"
#include "parallel_apply.h"

/* True between the BEGIN of such a transaction and its local commit. */
extern bool papply_store_is_on;

/*
 * May a transaction of this subscription still be stored?  Then the core apply
 * loop must end prepared transactions, as one of them may be that transaction.
 */
extern bool papply_store_has_requests;

/* Note a message that the core apply loop gets. */
extern void papply_store_message(const PapplyMessage *message);

/* Do so if the message may matter. */
static inline void
papply_store_note(const PapplyMessage *message)
{
	if (unlikely(papply_store_is_on || papply_store_has_requests ||
				 MySubscription->skiplsn != InvalidXLogRecPtr))
		papply_store_message(message);
}

/*
 * Look for transactions that are to be stored.  Must the publisher send whole
 * transactions only, in the stream that is about to start?  Changes that the server spools in its own files could not be
 * stored.
 */
extern bool papply_store_forbids_streaming(void);

#endif							/* PAPPLY_STORE_H */
