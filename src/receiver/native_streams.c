/*-------------------------------------------------------------------------
 * native_streams.c
 *	  Track streamed transactions that the core apply loop spools.
 *
 * Runs in the leader apply worker, which may have no pool, and in workers that
 * synchronize tables, which have none.
 *
 * A publisher of version 18 or later may report the rollback of a
 * subtransaction of which it has sent nothing, if it has found the rollback
 * before it decoded the subtransaction
 * (ReorderBufferCheckAndTruncateAbortedTXN()).  The core apply loop looks for
 * the subtransaction in its files.  If it has never spooled anything, there is
 * not even a set of files, so the worker crashes, and the server restarts.
 * That recurs until the publisher no longer has to report the rollback.  So the
 * core apply loop gets the rollback only if it has got a part of the
 * transaction.  It would crash likewise at the commit of a
 * transaction of which it has got nothing; no publisher sends this, so it is an
 * error.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "nodes/pg_list.h"
#include "replication/logicalproto.h"
#include "utils/memutils.h"

#include "connection.h"
#include "native_streams.h"

static List *xids = NIL;		/* of top-level transactions */

void
papply_native_streams_begin(TransactionId xid)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	xids = list_append_unique_oid(xids, xid);
	MemoryContextSwitchTo(old_context);
}

void
papply_native_streams_end(TransactionId xid)
{
	if (!list_member_oid(xids, xid))
		papply_message_malformed();
	xids = list_delete_oid(xids, xid);
}

bool
papply_native_streams_abort(TransactionId xid, TransactionId subxid)
{
	if (!list_member_oid(xids, xid))
		return false;
	if (xid == subxid)
		papply_native_streams_end(xid);
	return true;
}

bool
papply_native_streams_exist(void)
{
	return xids != NIL;
}

/*
 * May the core apply loop get the message?  Also notes where streamed
 * transactions begin and end.
 */
static bool
may_be_passed(const PapplyMessage *message)
{
	PapplyCommit commit;

	switch (message->kind)
	{
		case LOGICAL_REP_MSG_STREAM_START:
			papply_native_streams_begin(message->id);
			return true;
		case LOGICAL_REP_MSG_STREAM_COMMIT:
		case LOGICAL_REP_MSG_STREAM_PREPARE:
			papply_message_parse_commit(message, &commit);
			papply_native_streams_end(commit.xid);
			return true;
		case LOGICAL_REP_MSG_STREAM_ABORT:
			return papply_native_streams_abort(message->id, papply_message_subxid(message));
		default:
			return true;
	}
}

int
papply_native_streams_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	int			length;
	PapplyReceived received;

	do
	{
		length = (papply_connection_functions->walrcv_receive) (conn, buffer, wait_fd);
		if (length <= 0)
			return length;
		received = papply_message_open(*buffer, length);
	} while (!may_be_passed(&received.message));
	return length;
}
