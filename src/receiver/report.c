/*-------------------------------------------------------------------------
 * report.c
 *	  When the publisher is told how far we are.
 *
 * Runs in the receiver, while there is a pool.  What it is told is said in
 * feedback.c; each message costs a system call here and a wake-up there, so
 * there shall be few.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "replication/walreceiver.h"

#include "clock.h"
#include "due_flush.h"
#include "feedback.h"
#include "lifecycle.h"
#include "report.h"
#include "seam.h"
#include "wal_flush.h"

/* Commits are confirmed at least this often while there is more to do. */
#define REPORT_INTERVAL_MS 100

/* That a transaction was received is told after so long, if not committed. */
#define RECEIVED_PATIENCE_MS 1

/*
 * A reply that was asked for, and put off until there is more to tell, is sent after so
 * long all the same.  So is one that may be asked for, while nothing is read from the
 * connection.  Or earlier, where the publisher would give us up.
 */
#define REPLY_INTERVAL_MS 100

/* So often the publisher hears of us while a message waits, or earlier, likewise. */
#define SILENCE_MS 1000

/*
 * A publisher that is shut down asks again as soon as it is answered, until all that it
 * has sent is flushed.  If that may take long, because a writer waits for a lock, say, it
 * gets no answer, and gives up after wal_sender_timeout: as it does with PostgreSQL's own
 * apply, which cannot answer meanwhile.  Else it asks when half of that time is over.
 */
#define ASKED_AGAIN_MS 200
#define ASKED_TIMES 20

static int64 reported_at = 0;
static bool has_committed = false;	/* and nobody has been woken to flush it */
static bool has_untold = false; /* received the end of a transaction */
static int64 untold_since = 0;

/* As of clock.h; 0: not so. */
static int64 owed_since = 0;	/* a reply was asked for, and put off */
static int64 unread_since = 0;	/* nothing is read from the connection */

static int	publisher_timeout_ms = 0;	/* its wal_sender_timeout, when the
										 * stream began; 0: none */

static int	asked_times = 0;	/* one soon after the other, and nothing
								 * flushed since */
static int64 asked_at = 0;
static XLogRecPtr asked_flushed_lsn = InvalidXLogRecPtr;

void
papply_report_committed(void)
{
	has_committed = true;
}

void
papply_report_received(void)
{
	has_untold = true;
}

static XLogRecPtr
flushed_lsn(void)
{
	return papply_feedback_flushed_lsn(papply_lifecycle_is_idle());
}

void
papply_report_asked(void)
{
	int64		now = papply_clock_now();

	owed_since = 0;
	if (asked_flushed_lsn != flushed_lsn() ||
		papply_clock_has_passed(asked_at, now, ASKED_AGAIN_MS))
		asked_times = 0;
	asked_times++;
	asked_at = now;
	asked_flushed_lsn = flushed_lsn();
}

bool
papply_report_flush(void)
{
	bool		is_told = papply_due_flush_ask() && wal_receiver_status_interval > 0;

	papply_feedback_flush(true);
	has_committed = false;
	has_untold |= is_told;
	if (is_told && owed_since == 0)
		owed_since = papply_clock_now();
	return is_told;
}

void
papply_report_set_timeout(int timeout_ms)
{
	publisher_timeout_ms = timeout_ms;
}

/* A part of a timeout, if that is less. */
static int
limited_by(int timeout_ms, int interval_ms)
{
	return timeout_ms > 0 ? Max(1, Min(timeout_ms / 4, interval_ms)) : interval_ms;
}

int
papply_report_silence_ms(void)
{
	return limited_by(publisher_timeout_ms, limited_by(wal_receiver_timeout, SILENCE_MS));
}

static bool
is_reply_late(int64 since, int64 now)
{
	return since != 0 &&
		papply_clock_has_passed(since, now,
								limited_by(publisher_timeout_ms, REPLY_INTERVAL_MS));
}

bool
papply_report_must_reply(bool is_reading)
{
	int64		now;

	if (is_reading)
		unread_since = 0;
	if (is_reading && owed_since == 0)
		return false;
	now = papply_clock_now();
	if (!is_reading && unread_since == 0)
		unread_since = now;
	if (!is_reply_late(owed_since, now) && !is_reply_late(unread_since, now))
		return false;
	owed_since = unread_since = 0;
	return true;
}

bool
papply_report_may_answer(void)
{
	return asked_times < ASKED_TIMES || asked_flushed_lsn != flushed_lsn() ||
		flushed_lsn() >= papply_feedback_received_lsn();
}

/*
 * A transaction that was received is likely to be committed in a moment; one
 * message for both costs publisher and subscriber half.  Without
 * wal_receiver_status_interval the publisher is told nothing, unless it has asked for it
 * and got no answer.
 */
static void
tell(WalReceiverConn *conn)
{
	bool		is_owed = asked_times >= ASKED_TIMES && papply_report_may_answer();
	bool		is_overdue = false;

	if (wal_receiver_status_interval <= 0 && !is_owed && owed_since == 0)
		return;
	if (has_untold)
	{
		int64		now = papply_clock_now();

		if (untold_since == 0)
			untold_since = now;
		is_overdue = papply_clock_has_passed(untold_since, now, RECEIVED_PATIENCE_MS);
	}
	is_overdue |= is_owed;
	if (papply_feedback_send(conn, papply_seam_server->walrcv_send,
							 papply_lifecycle_is_idle(), is_overdue))
	{
		has_untold = false;
		untold_since = 0;
		owed_since = 0;
	}
	if (is_owed)
		asked_times = 0;
}

/* There is more to do; now and then the publisher is told how far we are. */
void
papply_report_if_due(WalReceiverConn *conn)
{
	int64		now = papply_clock_now();

	if (!papply_clock_has_passed(reported_at, now, REPORT_INTERVAL_MS))
		return;
	reported_at = now;
	papply_due_flush_all();
	tell(conn);
}

void
papply_report_now(WalReceiverConn *conn)
{
	unread_since = 0;
	papply_due_flush_look();
	tell(conn);
	if (has_committed && papply_wal_flush_is_wanted())
		(void) papply_wal_flush_wake_writer();
	has_committed = false;
}

long
papply_report_patience_ms(void)
{
	if (untold_since != 0)
		return RECEIVED_PATIENCE_MS;
	return papply_due_flush_patience_ms();
}
