/*-------------------------------------------------------------------------
 * stream_chunk.c
 *	  Chunks of transactions that are streamed while they are in progress.
 *
 * Runs in the receiver.
 *
 * The native loop spools chunks to files until the transaction ends, so they
 * need no order with what the pool does.  But they may hold RELATION messages,
 * and once the transaction is committed the publisher does not repeat them for
 * others.  So these are kept here, per streamed transaction, until its end.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "message.h"
#include "queue.h"
#include "remote_relation.h"
#include "stream_chunk.h"

typedef struct SpooledRelation
{
	TransactionId xid;			/* of the top-level transaction */
	int			length;
	char		message[FLEXIBLE_ARRAY_MEMBER];
} SpooledRelation;

static List *spooled = NIL;		/* in the order of arrival */
static bool is_open = false;
static TransactionId open_xid = InvalidTransactionId;

/* In a chunk, the xid of the (sub)transaction follows the kind byte. */
static void
keep_relation(const char *message, int length)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	SpooledRelation *item = palloc(offsetof(SpooledRelation, message) + length);

	item->xid = open_xid;
	item->length = length - 4;
	item->message[0] = message[0];
	memcpy(item->message + 1, message + 5, length - 5);
	spooled = lappend(spooled, item);
	MemoryContextSwitchTo(old_context);
}

/* Forget what was kept for xid, after making it known if wanted. */
static void
end_spooled(TransactionId xid, bool is_known)
{
	ListCell   *lc;

	foreach(lc, spooled)
	{
		SpooledRelation *item = lfirst(lc);

		if (item->xid != xid)
			continue;
		if (is_known)
			papply_remote_relation_update(item->message, item->length,
										  papply_pool ? papply_queue_last_seqno() : 0);
		pfree(item);
		spooled = foreach_delete_current(spooled, lc);
	}
}

bool
papply_chunk_is_open(void)
{
	return is_open;
}

bool
papply_chunk_take(const char *message, int length)
{
	if (is_open)
	{
		if (message[0] == LOGICAL_REP_MSG_STREAM_STOP)
			is_open = false;
		else if (message[0] == LOGICAL_REP_MSG_RELATION && length > 9)
			keep_relation(message, length);
		return true;
	}
	if (message[0] == LOGICAL_REP_MSG_STREAM_START && length >= 5)
	{
		is_open = true;
		open_xid = papply_message_get_uint32(message + 1);
		return true;
	}
	if (message[0] == LOGICAL_REP_MSG_STREAM_ABORT && length >= 9)
	{
		/* the top-level transaction, not only a part of it */
		if (papply_message_get_uint32(message + 1) == papply_message_get_uint32(message + 5))
			end_spooled(papply_message_get_uint32(message + 1), false);
		return true;
	}
	return false;
}

void
papply_chunk_end(const char *message)
{
	if (message[0] == LOGICAL_REP_MSG_STREAM_COMMIT)
		end_spooled(papply_message_get_uint32(message + 1), true);
	else if (message[0] == LOGICAL_REP_MSG_STREAM_PREPARE)
		/* kind, flags, two positions, time, then the xid */
		end_spooled(papply_message_get_uint32(message + 1 + 1 + 8 + 8 + 8), true);
}
