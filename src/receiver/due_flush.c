/*-------------------------------------------------------------------------
 * due_flush.c
 *	  When commits are flushed.
 *
 * Runs in the receiver, while there is a pool; how they are flushed is said in
 * wal_flush.c.
 *
 * Somebody on the publisher may wait for it.  The protocol does not say whether, so
 * commits are flushed at once, unless the publisher asks for the flushes that are
 * waited for (ask.c).  Then the others may wait for a while: each one costs a write to
 * the device and two switches between processes.  PostgreSQL's own apply leaves them
 * to the walwriter, with its wal_writer_delay.
 *
 * A subscription that commits synchronously tells nothing before it is flushed, and
 * the subscriber's own walsenders send nothing before: then nothing is put off.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "replication/walsender.h"
#include "utils/timestamp.h"

#include "due_flush.h"
#include "feedback.h"
#include "lifecycle.h"
#include "wal_flush.h"

/* A commit waits so long for a writer that is free to flush it. */
#define PATIENCE_MS 5

/* And so long if nobody waits for it. */
#define HELD_MS 100

static bool publisher_asks = false;
static XLogRecPtr asked_lsn = InvalidXLogRecPtr;	/* of the publisher's WAL */
static TimestampTz unflushed_since = 0; /* and nobody flushes; 0: not so */

void
papply_due_flush_set_asks(bool asks)
{
	publisher_asks = asks;
}

/* Read without a lock: one that begins or ends is seen the next time. */
static bool
has_walsenders(void)
{
	for (int i = 0; i < max_wal_senders; i++)
		if (WalSndCtl->walsnds[i].pid != 0)
			return true;
	return false;
}

/* Will there be a flush only when it is asked for, or time? */
static bool
is_held(void)
{
	return publisher_asks && synchronous_commit <= SYNCHRONOUS_COMMIT_OFF &&
		papply_feedback_flushed_lsn(papply_lifecycle_is_idle()) >= asked_lsn &&
		!has_walsenders();
}

bool
papply_due_flush_ask(void)
{
	XLogRecPtr	received_lsn = papply_feedback_received_lsn();
	bool		is_new = received_lsn > asked_lsn;

	asked_lsn = received_lsn;
	papply_wal_flush_hold(is_held());
	return publisher_asks && is_new;
}

bool
papply_due_flush_is_expected(void)
{
	return papply_feedback_has_unflushed() && !is_held();
}

void
papply_due_flush_all(void)
{
	(void) papply_due_flush_ask();
	papply_feedback_flush(true);
}

void
papply_due_flush_look(void)
{
	bool		has_unflushed = papply_feedback_has_unflushed();
	TimestampTz now;

	papply_wal_flush_hold(is_held());
	if (!has_unflushed ||
		(papply_wal_flush_is_active() && !papply_feedback_waits_for_standbys()))
	{
		unflushed_since = 0;
		return;
	}
	now = GetCurrentTimestamp();
	if (unflushed_since == 0 || unflushed_since > now)
		unflushed_since = now;
	if (papply_feedback_waits_for_standbys() ||
		TimestampDifferenceExceeds(unflushed_since, now, papply_due_flush_patience_ms()))
	{
		papply_due_flush_all();
		unflushed_since = 0;
	}
}

long
papply_due_flush_patience_ms(void)
{
	if (unflushed_since == 0)
		return -1;
	return is_held() ? HELD_MS : PATIENCE_MS;
}
