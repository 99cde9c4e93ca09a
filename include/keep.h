/*-------------------------------------------------------------------------
 * room: receiver
 *
 * keep.h
 *	  A transaction that is skipped is stored.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_KEEP_H
#define PAPPLY_KEEP_H

#include "replication/worker_internal.h"

#include "parallel_apply.h"

/* Between the BEGIN of such a transaction and its local commit. */
extern bool papply_keep_is_on;

/* The native loop gets that message; NULL: it asks for the next one. */
extern void papply_keep_message(char *message, int length);

/* As far as it may matter. */
static inline void
papply_keep_note(char *message, int length)
{
	if (unlikely(papply_keep_is_on || MySubscription->skiplsn != InvalidXLogRecPtr))
		papply_keep_message(message, length);
}

/*
 * The stream is about to start: must the publisher send whole transactions only?  What
 * the server has kept in its own files could not be stored.
 */
extern bool papply_keep_forbids_streaming(void);

#endif							/* PAPPLY_KEEP_H */
