/*-------------------------------------------------------------------------
 * native_watch.c
 *	  Receive messages while PostgreSQL's own apply is chosen.
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
 *   start only between two transactions.  So BEGIN and COMMIT are noted (tap.c).
 * - A publisher sends the definition of a table once per connection, so
 *   RELATION messages are kept for a later pool.
 * - Streamed transactions are noted: see native_streams.c.
 * - Views show transactions, rows and positions of such a subscription too.
 * - A view shows which transaction is being applied, which one an error belongs
 *   to, and waits for locks.
 *
 * Therefore the kind of each message is read.  A transaction with one change
 * costs about 740 instructions, of 64,000; bench/instructions --unused
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
#include "feedback.h"
#include "leader_waits.h"
#include "lifecycle.h"
#include "native_watch.h"
#include "remote_relation.h"
#include "spool.h"
#include "status.h"
#include "tap.h"

typedef struct Watch
{
	bool		is_on;
	bool		has_slept;		/* the core apply loop may have slept */
	bool		is_in_chunk;	/* of a streamed transaction */
	XLogRecPtr	received_lsn;	/* of the newest message, perhaps not noted
								 * yet */
} Watch;

static Watch watch;

void
papply_native_watch_begin(void)
{
	memset(&watch, 0, sizeof(watch));
	watch.is_on = true;
}

static pg_noinline void
note_keepalive(PapplyReceived keepalive)
{
	papply_feedback_received(keepalive.end_lsn);
	papply_connection_note_keepalive(&keepalive);
}

/* Note what was received.  Return false if the core apply loop must not get it. */
static bool
note_received(char *buffer, int length)
{
	PapplyReceived received = papply_message_open(buffer, length);

	if (received.type != 'w')
	{
		if (received.type == 'k')
			note_keepalive(received);
		return true;
	}
	papply_tap.message = received.message;
	papply_connection_last.send_time = received.send_time;
	papply_connection_last.has_sent_all = false;
	watch.received_lsn = Max(received.lsn, received.end_lsn);
	if (watch.is_in_chunk || papply_message_is_of_stream(papply_tap.message.kind))
	{
		PapplyFate	fate = papply_spool_take(&papply_tap.message, false);

		watch.is_in_chunk = papply_spool_native_is_open();
		if (fate != PAPPLY_UNDECIDED)
			return fate == PAPPLY_TO_CORE_LOOP;
	}
	papply_tap_note();
	if (papply_tap.message.kind == LOGICAL_REP_MSG_RELATION)
		papply_remote_relation_update(&papply_tap.message, 0);
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
	if (watch.is_in_chunk)
		return false;
	if (watch.has_slept)
		AcceptInvalidationMessages();
	watch.has_slept = false;
	return !papply_lifecycle_has_chosen_native();
}

int
papply_native_watch_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	int			length;

	if (!watch.is_on)
		return PAPPLY_NOT_WATCHING;
	papply_leader_waits_look();
	papply_tap_next();
	if (!papply_tap.is_within)
	{
		papply_feedback_received(watch.received_lsn);
		papply_tap_end();
		watch.is_on = !must_end();
		if (!watch.is_on)
			return PAPPLY_NOT_WATCHING;
	}
	do
		length = (papply_connection_functions->walrcv_receive) (conn, buffer, wait_fd);
	while (length > 0 && !note_received(*buffer, length));
	if (length == 0)
	{
		watch.has_slept = true;
		papply_feedback_received(watch.received_lsn);
		papply_status_update(false, true);
	}
	return length;
}
