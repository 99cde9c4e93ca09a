/*-------------------------------------------------------------------------
 * native_watch.c
 *	  Note what passes while PostgreSQL's own apply is chosen.
 *
 * Runs in the receiver, without a pool.
 *
 * If one writer is configured, or the extension is not installed in the
 * database, the core apply loop (LogicalRepApplyLoop) gets each message from
 * the server's function as it arrived.  The receiver makes no system call of
 * its own, starts no transaction, writes no WAL, and holds nothing back.  Some
 * things must be known nevertheless:
 *
 * - The number of writers can be changed during the connection, and a pool can
 *   start only between two transactions.  So BEGIN and COMMIT are noted.
 * - A publisher sends the definition of a table once per connection, so
 *   RELATION messages are kept for a later pool.
 * - Streamed transactions are noted: see native_streams.c.
 * - Views show transactions, rows and positions of such a subscription too.
 * - A view shows which transaction is being applied, and which one an error
 *   belongs to.
 *
 * Therefore one byte of each message is read.  A transaction with one change
 * costs about 700 instructions, of 64,000; bench/instructions --unused
 * measures that.
 *
 * The alternative, restoring the server's table of functions, would cost no
 * instruction.  But then a pool could start only with a new connection, and a
 * publisher of version 18 or later could crash the apply worker
 * (native_streams.c).
 *
 * A change of the settings, of the subscription's options or of the extension
 * may end this.  papply_lifecycle_has_chosen_native() finds out from what
 * invalidation callbacks have noted, and receive_and_route() in receiver.c
 * continues from there.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/inval.h"

#include "connection.h"
#include "failed.h"
#include "feedback.h"
#include "leader_count.h"
#include "lifecycle.h"
#include "native_watch.h"
#include "pause_point.h"
#include "remote_relation.h"
#include "spool.h"
#include "status.h"
#include "store.h"

/* Status is shown after this many transactions while there is more to read. */
#define SHOWN_TRANSACTIONS 64

/* Offsets of three fields of a BEGIN, and of the end LSN of a COMMIT. */
#define OFFSET_OF_FINAL_LSN 1
#define OFFSET_OF_COMMIT_TIME 9
#define OFFSET_OF_XID 17
#define OFFSET_OF_END_LSN 10

typedef struct Watch
{
	bool		is_on;
	bool		is_within;		/* in a transaction that is not streamed */
	bool		has_ended;		/* the core apply loop has its last message */
	XLogRecPtr	end_lsn;		/* of that transaction */
	uint32		unshown;		/* transactions since the status was last
								 * shown */
	bool		has_slept;		/* the core apply loop may have slept */
	bool		has_received;	/* a message; these two are not noted yet */
	XLogRecPtr	received_lsn;
	TimestampTz send_time;
} Watch;

static Watch watch;

void
papply_native_watch_begin(void)
{
	memset(&watch, 0, sizeof(watch));
	watch.is_on = true;
}

bool
papply_native_watch_is_on(void)
{
	return watch.is_on;
}

/* Take over the position and the time of the newest message. */
static void
note_positions(void)
{
	if (!watch.has_received)
		return;
	papply_feedback_received(watch.received_lsn);
	papply_connection_last.send_time = watch.send_time;
	papply_connection_last.has_sent_all = false;
	watch.has_received = false;
}

static void
show_status(void)
{
	note_positions();
	if (watch.unshown > 0)
		papply_status_received(papply_statistics_progress->leader.commit_time);
	watch.unshown = 0;
	papply_status_update(false, true);
}

/* The core apply loop asks for more, so it has committed what it got. */
static void
count_transaction(void)
{
	watch.has_ended = false;
	papply_statistics_progress->leader.is_applying = false;
	papply_leader_count_commit();
	papply_status_native_end(watch.end_lsn);
	if (++watch.unshown >= SHOWN_TRANSACTIONS)
		show_status();
}

static void
note_begin(const PapplyBegin *begin)
{
	PapplyLeader *leader = &papply_statistics_progress->leader;

	watch.is_within = true;
	leader->is_applying = true;
	leader->began_at = 0;		/* the clock is not read */
	leader->changes = 0;
	papply_status_native_begin(begin->final_lsn, begin->commit_time, begin->xid);
	papply_pause_point_note_begun(begin->final_lsn);
}

static void
note_end(XLogRecPtr end_lsn)
{
	watch.end_lsn = end_lsn;
	watch.is_within = false;
	watch.has_ended = true;
}

/*
 * Note a message that is neither a change nor the BEGIN or COMMIT of an
 * ordinary transaction.  Return false if the core apply loop must not get it.
 */
static bool
note_other(const PapplyMessage *message)
{
	PapplyFate	fate;
	PapplyBegin begin;
	PapplyCommit commit;

	if (papply_spool_take(message, false, &fate))
		return fate == PAPPLY_TO_CORE_LOOP;
	switch (message->kind)
	{
		case LOGICAL_REP_MSG_RELATION:
			papply_remote_relation_update(message, 0);
			break;
		case LOGICAL_REP_MSG_PREPARE:
			papply_message_parse_commit(message, &commit);
			note_end(commit.end_lsn);
			break;
		default:
			if (!papply_message_parse_first(message, &begin))
				break;
			note_begin(&begin);
			if (begin.end_lsn != InvalidXLogRecPtr)
				note_end(begin.end_lsn);
	}
	return true;
}

/*
 * Note any message, with the same result.  Changes that are not streamed are
 * counted.  BEGIN and COMMIT are read without checking their format, which the
 * core apply loop does.
 */
static bool
note_message(const PapplyMessage *message)
{
	PapplyBegin begin = {0};

	if (papply_spool_native_is_open())
		return note_other(message);
	switch (message->kind)
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
		case LOGICAL_REP_MSG_TRUNCATE:
			if (watch.is_within)
				papply_leader_count_message(message->kind, false);
			return true;
		case LOGICAL_REP_MSG_BEGIN:
			if (message->length < OFFSET_OF_XID + (int) sizeof(TransactionId))
				return true;
			begin.final_lsn = papply_message_get_uint64(message->data + OFFSET_OF_FINAL_LSN);
			begin.commit_time = papply_message_get_uint64(message->data + OFFSET_OF_COMMIT_TIME);
			begin.xid = papply_message_get_uint32(message->data + OFFSET_OF_XID);
			note_begin(&begin);
			return true;
		case LOGICAL_REP_MSG_COMMIT:
			if (message->length >= OFFSET_OF_END_LSN + (int) sizeof(XLogRecPtr))
				note_end(papply_message_get_uint64(message->data + OFFSET_OF_END_LSN));
			return true;
		default:
			return note_other(message);
	}
}

/* Reads no more of an ordinary message than is needed: see the head of this file. */
static bool
note_received(char *buffer, int length)
{
	if (buffer[0] == 'w' && length > PAPPLY_MESSAGE_HEADER)
	{
		watch.received_lsn = Max(papply_message_get_uint64(buffer + 1),
								 papply_message_get_uint64(buffer + 9));
		watch.send_time = papply_message_get_uint64(buffer + 17);
		watch.has_received = true;
		papply_failed_message = papply_message_read(buffer + PAPPLY_MESSAGE_HEADER,
													length - PAPPLY_MESSAGE_HEADER);
		if (!note_message(&papply_failed_message))
			return false;
		papply_store_note(&papply_failed_message);
	}
	else
	{
		PapplyReceived received = papply_message_open(buffer, length);

		if (received.type == 'k')
		{
			note_positions();
			papply_feedback_received(received.end_lsn);
			papply_connection_note_keepalive(&received);
		}
	}
	return true;
}

/*
 * Must the watch end?  The core apply loop accepts invalidations with each
 * transaction, and before it sleeps.  If the configuration was changed while
 * it slept, the change must take effect for what arrives now.
 */
static bool
must_end(void)
{
	if (watch.is_within || papply_spool_native_is_open())
		return false;
	if (watch.has_slept)
		AcceptInvalidationMessages();
	watch.has_slept = false;
	return !papply_lifecycle_has_chosen_native();
}

bool
papply_native_watch_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd, int *length)
{
	if (watch.has_ended)
		count_transaction();
	if (must_end())
	{
		note_positions();
		watch.is_on = false;
		return false;
	}
	while ((*length = (papply_connection_functions->walrcv_receive) (conn, buffer, wait_fd)) > 0 &&
		   !note_received(*buffer, *length))
		papply_failed_message.kind = 0;
	if (*length == 0)
	{
		watch.has_slept = true;
		show_status();
	}
	return true;
}
