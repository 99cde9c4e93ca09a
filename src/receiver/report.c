/*-------------------------------------------------------------------------
 * report.c
 *	  Decide when to report positions to the publisher.
 *
 * Runs in the receiver, while there is a pool.  feedback.c builds the messages.  Each of
 * them costs a system call here and a wake-up on the publisher, so there should be few.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "replication/walreceiver.h"

#include "clock.h"
#include "connection.h"
#include "due_flush.h"
#include "feedback.h"
#include "lifecycle.h"
#include "report.h"
#include "test_hooks.h"
#include "wal_flush.h"

/* Commits are confirmed at least this often while there is more to read. */
#define REPORT_INTERVAL_MS 100

/* A transaction's arrival is reported after this time, if it is not committed before. */
#define RECEIVED_PATIENCE_MS 1

/*
 * A reply that was requested, and deferred until there is more to report, is sent after
 * this time anyway.  So is one that may have been requested while nothing is read from
 * the connection.  Both are sent earlier if the publisher would time out.
 */
#define REPLY_INTERVAL_MS 100

/*
 * The publisher gets a message at least this often while messages are left unread, or
 * earlier, for the same reason.
 */
#define SILENCE_MS 1000

/*
 * A publisher that is shut down requests a reply again as soon as it has got one, until
 * all that it has sent is flushed.  If that may take long, because a writer waits for a
 * lock for instance, it gets no reply, and gives up after wal_sender_timeout.  The same
 * happens with PostgreSQL's own apply, which cannot reply in the meantime.  Otherwise, a
 * publisher requests a reply when half of that time is over.
 */
#define ASKED_AGAIN_MS 200
#define ASKED_TIMES 20

/* Times are those of clock.h; 0: not the case. */
typedef struct ReportStatus
{
	int64		reported_at;
	bool		has_committed;	/* and no process has been woken to flush */
	bool		has_unreported; /* received the end of a transaction */
	int64		unreported_since;
	int64		owed_since;		/* a reply was requested, and deferred */
	int64		unread_since;	/* nothing is read from the connection */
	int			publisher_timeout_ms;	/* its wal_sender_timeout when the
										 * stream began; 0: none */
} ReportStatus;

static ReportStatus status;

/* Requests in rapid succession, with nothing flushed since. */
typedef struct AskedReplies
{
	int			times;
	int64		at;
	XLogRecPtr	flushed_lsn;
} AskedReplies;

static AskedReplies asked;

void
papply_report_committed(void)
{
	status.has_committed = true;
}

void
papply_report_received(void)
{
	status.has_unreported = true;
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

	status.owed_since = 0;

	if (asked.flushed_lsn != flushed_lsn() ||
		papply_clock_has_passed(asked.at, now, ASKED_AGAIN_MS))
		asked.times = 0;
	asked.times++;
	asked.at = now;
	asked.flushed_lsn = flushed_lsn();
}

bool
papply_report_flush(void)
{
	bool		must_report = papply_due_flush_ask() && wal_receiver_status_interval > 0;

	papply_feedback_flush(true);
	status.has_committed = false;
	status.has_unreported |= must_report;

	if (must_report && status.owed_since == 0)
		status.owed_since = papply_clock_recent();

	return must_report;
}

void
papply_report_set_timeout(int timeout_ms)
{
	status.publisher_timeout_ms = timeout_ms;
}

/* Return interval_ms, or a quarter of the timeout if that is less. */
static int
limited_by(int timeout_ms, int interval_ms)
{
	return timeout_ms > 0 ? Max(1, Min(timeout_ms / 4, interval_ms)) : interval_ms;
}

int
papply_report_silence_ms(void)
{
	int			silence_ms = papply_test_silence_ms(SILENCE_MS);

	return limited_by(status.publisher_timeout_ms, limited_by(wal_receiver_timeout, silence_ms));
}

static bool
is_reply_late(int64 since, int64 now)
{
	return since != 0 &&
		papply_clock_has_passed(since, now,
								limited_by(status.publisher_timeout_ms, REPLY_INTERVAL_MS));
}

bool
papply_report_must_reply(bool is_reading)
{
	int64		now;

	if (is_reading)
		status.unread_since = 0;

	if (is_reading && status.owed_since == 0)
		return false;
	now = papply_clock_recent();
	if (!is_reading && status.unread_since == 0)
		status.unread_since = now;

	if (!is_reply_late(status.owed_since, now) && !is_reply_late(status.unread_since, now))
		return false;
	status.owed_since = status.unread_since = 0;

	return true;
}

bool
papply_report_may_answer(void)
{
	return asked.times < ASKED_TIMES || asked.flushed_lsn != flushed_lsn() ||
		flushed_lsn() >= papply_feedback_received_lsn();
}

/*
 * Send a status message if there is something new.  A transaction that was received is
 * likely to be committed within a moment; one message for both halves the cost.  Without
 * wal_receiver_status_interval, nothing is sent but replies that the publisher has
 * requested and not got.
 */
static void
send_if_new(WalReceiverConn *conn)
{
	bool		is_owed = asked.times >= ASKED_TIMES && papply_report_may_answer();
	bool		is_overdue;

	if (wal_receiver_status_interval <= 0 && !is_owed && status.owed_since == 0)
		return;
	is_overdue = is_owed ||
		(status.has_unreported &&
		 papply_clock_has_lasted(&status.unreported_since, papply_clock_now(),
								 RECEIVED_PATIENCE_MS));
	if (papply_feedback_send(conn, papply_connection_functions->walrcv_send,
							 papply_lifecycle_is_idle(), is_overdue))
	{
		status.has_unreported = false;
		status.unreported_since = 0;
		status.owed_since = 0;
	}
	if (is_owed)
		asked.times = 0;
}

void
papply_report_if_due(WalReceiverConn *conn)
{
	if (!papply_clock_is_due(&status.reported_at, papply_clock_recent(), REPORT_INTERVAL_MS))
		return;
	papply_due_flush_regularly();
	send_if_new(conn);
}

long
papply_report_now(WalReceiverConn *conn, bool is_slow)
{
	long		flush_ms;

	status.unread_since = 0;
	send_if_new(conn);			/* a flush may take longer */
	if (status.has_committed && papply_wal_flush_is_wanted())
		(void) papply_wal_flush_wake_writer();
	status.has_committed = false;
	flush_ms = papply_due_flush_look(is_slow);
	send_if_new(conn);
	return status.unreported_since != 0 ? RECEIVED_PATIENCE_MS : flush_ms;
}
