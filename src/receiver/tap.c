/*-------------------------------------------------------------------------
 * tap.c
 *	  Pass messages to the core apply loop, and notify observers.
 *
 * Runs in the receiver, with and without a pool.
 *
 * Each transaction that the core apply loop (LogicalRepApplyLoop) applies passes
 * here, whatever way it came:  without a pool (native_watch.c), directly from
 * the connection or from the queue (core_loop.c).  These files decide which
 * message comes next.  This one finds out where a transaction begins and ends,
 * and notifies observers: for views (status.c), statistics
 * (leader_count.c), a pause at a position (pause_point.c), and transactions
 * that fail or are skipped.  They register themselves, so the path of a message
 * does not depend on what is observed.
 *
 * A transaction has ended when the core apply loop asks for more after its last
 * message, because it has committed it by then.
 *
 * Without a pool, a message stays in the buffer in which it was received.
 * Otherwise it gets a new frame.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "libpq/pqformat.h"

#include "connection.h"
#include "local_schema.h"
#include "tap.h"

PapplyTap	papply_tap;
PapplyTapNeeds papply_tap_needs;

PapplyTapObserver papply_tap_observers[PAPPLY_TAP_EVENTS][PAPPLY_TAP_MAX_OBSERVERS + 1];

static StringInfoData frame;	/* the last message, in memory that is kept */

static emit_log_hook_type previous_emit_log = NULL;

void
papply_tap_observe(PapplyTapEvent event, PapplyTapObserver observer)
{
	int			n = 0;

	while (papply_tap_observers[event][n] != NULL)
		n++;
	Assert(n < PAPPLY_TAP_MAX_OBSERVERS);
	papply_tap_observers[event][n] = observer;
}

/*** errors ***/

/* An observer may report something itself. */
static void
note_logged(ErrorData *error)
{
	const ErrorData *outer = papply_tap.error;

	papply_tap.error = error;
	papply_tap_notify(PAPPLY_TAP_ERROR);
	papply_tap.error = outer;
	if (previous_emit_log)
		previous_emit_log(error);
}

void
papply_tap_attach(void)
{
	previous_emit_log = emit_log_hook;
	emit_log_hook = note_logged;
}

PapplyRemoteRelation *
papply_tap_relation(void)
{
	switch (papply_tap.message.kind)
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			return papply_remote_relation_get(papply_tap.message.id, false);
		default:
			return NULL;
	}
}

/*** frames ***/

/*
 * The positions are invalid on purpose, so that the core apply loop does not
 * take them as received.
 */
int
papply_tap_frame(const PapplyMessage *message, Oid schema, char **buffer)
{
	papply_message_reset_buffer(&frame);
	pq_sendbyte(&frame, 'w');
	pq_sendint64(&frame, InvalidXLogRecPtr);
	pq_sendint64(&frame, InvalidXLogRecPtr);
	pq_sendint64(&frame, papply_connection_last.send_time);
	if (message->kind == LOGICAL_REP_MSG_RELATION)
		papply_local_schema_append(&frame, message->data, message->length, schema);
	else
		appendBinaryStringInfo(&frame, message->data, message->length);
	*buffer = frame.data;
	return frame.len;
}

int
papply_tap_keepalive(XLogRecPtr remote_lsn, bool reply_requested, char **buffer)
{
	papply_message_reset_buffer(&frame);
	pq_sendbyte(&frame, 'k');
	pq_sendint64(&frame, remote_lsn);
	pq_sendint64(&frame, papply_connection_last.send_time);
	pq_sendbyte(&frame, reply_requested);
	*buffer = frame.data;
	return frame.len;
}
