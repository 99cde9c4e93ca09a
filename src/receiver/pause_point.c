/*-------------------------------------------------------------------------
 * pause_point.c
 *	  Hold the transactions beyond the position at which a session pauses apply.
 *
 * Runs in the receiver, with and without a pool.
 *
 * A publisher sends transactions in the order of the records that end them: COMMIT,
 * PREPARE, COMMIT PREPARED.  The first message of a transaction has the LSN of that
 * record, its final LSN; of a streamed transaction it is the message that ends it.
 * So holding the first transaction whose final LSN is not before the position, and
 * with it everything that follows, applies what ended before the position, and
 * nothing else.  Chunks of streamed transactions are received before that as usual.
 *
 * This is the order in which PostgreSQL creates the snapshot of a replication slot: a
 * transaction is visible in it if its record is before the slot's first position.
 *
 * The state is reached when all that has begun is committed, and either a
 * transaction is held, or the publisher has sent everything up to the position,
 * although there was no transaction.  The position was passed if a transaction beyond
 * it has begun already.  A receiver that starts takes the progress of the replication
 * origin, which is the end of a record, for that of the last one that has begun:
 * between two records both say the same.
 *
 * If the session has given no position, it is the byte after the beginning of the last
 * record that has begun, which a receiver that starts would take for passed.  So it
 * sets the position again: its predecessor has begun nothing beyond that.
 *
 * Between the look at the number of changes and the beginning of a transaction, a
 * session may add a pause.  Then the position was passed.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "replication/worker_internal.h"
#include "storage/latch.h"

#include "feedback.h"
#include "pause_point.h"
#include "session_pauses.h"
#include "status.h"
#include "tap.h"

typedef struct PausePoint
{
	bool		is_known;		/* has been read once */
	uint32		changes;		/* when it was read */
	XLogRecPtr	begun_lsn;		/* final LSN of the newest transaction that
								 * has begun */
	PapplySessionPause pause;	/* the position is InvalidXLogRecPtr: there is
								 * none */
	bool		is_holding;		/* a transaction beyond it */
} PausePoint;

static PausePoint point;

static void
note_begun(XLogRecPtr final_lsn)
{
	point.begun_lsn = Max(point.begun_lsn, final_lsn);
}

static void
note_begin(const PapplyTap *tap)
{
	note_begun(tap->begin.final_lsn);
}

void
papply_pause_point_init(XLogRecPtr origin_lsn)
{
	papply_tap_observe(PAPPLY_TAP_BEGIN, note_begin);
	point.is_known = false;
	point.begun_lsn = origin_lsn == InvalidXLogRecPtr ? InvalidXLogRecPtr : origin_lsn - 1;
}

static void
report(PapplySessionPauseState state, XLogRecPtr remote_lsn)
{
	papply_session_pauses_report(&point.pause, remote_lsn, state);
	point.pause.state = state;
	point.pause.remote_lsn = remote_lsn;
}

/* Read the pause, if it may have changed. */
static void
look(void)
{
	uint32		changes = papply_session_pauses_changes();
	bool		is_first = !point.is_known;

	if (likely(point.is_known && changes == point.changes))
		return;
	point.is_known = true;
	point.changes = changes;
	if (point.is_holding)
		papply_status_hold(0);
	point.is_holding = false;
	if (!papply_session_pauses_get(MySubscription->oid, &point.pause))
	{
		point.pause.remote_lsn = InvalidXLogRecPtr;
		return;
	}
	if (!point.pause.has_position &&
		(is_first || point.pause.remote_lsn == InvalidXLogRecPtr))
		report(PAPPLY_PAUSE_REQUESTED, point.begun_lsn + 1);
	else if (point.pause.remote_lsn <= point.begun_lsn)
	{
		report(PAPPLY_PAUSE_PASSED, point.pause.remote_lsn);
		point.pause.remote_lsn = InvalidXLogRecPtr;
	}
}

bool
papply_pause_point_is_set(void)
{
	look();
	return point.pause.remote_lsn != InvalidXLogRecPtr;
}

bool
papply_pause_point_holds(XLogRecPtr final_lsn)
{
	bool		was_holding = point.is_holding;

	point.is_holding = papply_pause_point_is_set() && final_lsn >= point.pause.remote_lsn;
	if (!point.is_holding)
		note_begun(final_lsn);
	else if (!was_holding)
		SetLatch(MyLatch);		/* see whether the state is reached before
								 * sleeping: nothing else may wake it */
	return point.is_holding;
}

bool
papply_pause_point_is_reached(bool is_idle)
{
	if (!papply_pause_point_is_set())
		return false;
	if (point.pause.state == PAPPLY_PAUSE_REQUESTED && is_idle &&
		(point.is_holding || papply_feedback_received_lsn() >= point.pause.remote_lsn))
		report(PAPPLY_PAUSE_REACHED, point.pause.remote_lsn);
	return point.pause.state == PAPPLY_PAUSE_REACHED;
}
