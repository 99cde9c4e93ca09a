/*-------------------------------------------------------------------------
 * feedback.c
 *	  Positions that the publisher is told.
 *
 * Runs in the receiver, while there is a pool.
 *
 * Three positions of the publisher's WAL: received ("write"), committed and
 * visible ("apply"), and flushed ("flush").  The native loop believes that
 * everything it got was applied, so its status messages are rewritten, and
 * when positions move the receiver sends messages of its own: a backend of the
 * publisher may be waiting for them (synchronous replication), and nothing in
 * the protocol tells whether one is.
 *
 * "Received" is what has been put into the queue (or the spool): the publisher
 * calls it written, which to a logical subscriber means nothing more, and who
 * waits for remote_write waits for that only.
 *
 * Writers commit asynchronously whatever the subscription's synchronous_commit
 * is.  One that can be spared flushes once for many commits (wal_flush.c); under
 * backlog the walwriter does it.  A position is confirmed when the local commits
 * up to it are flushed.
 *
 * While nothing is in flight, the newest position seen in any message counts
 * as applied: the publisher must be able to forget WAL that has nothing for us.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "replication/syncrep.h"
#include "replication/walreceiver.h"
#include "utils/timestamp.h"

#include "feedback.h"
#include "message.h"
#include "wal_flush.h"

/*
 * Commits that are not flushed.  When the array is full, the newest one stands
 * for those that follow: confirmed a little later.
 */
#define MAX_UNFLUSHED 1024

typedef struct Unflushed
{
	XLogRecPtr	remote_end_lsn;
	XLogRecPtr	local_end_lsn;
} Unflushed;

static Unflushed unflushed[MAX_UNFLUSHED];	/* a ring */
static int	unflushed_first = 0;
static int	unflushed_count = 0;

/* End of the last local commit: of the subscriber's WAL, never decreasing. */
static XLogRecPtr newest_local_end_lsn = InvalidXLogRecPtr;

/* All of the publisher's WAL, never decreasing. */
static XLogRecPtr received_lsn = InvalidXLogRecPtr;
static XLogRecPtr applied_lsn = InvalidXLogRecPtr;
static XLogRecPtr flushed_lsn = InvalidXLogRecPtr;

/* Local WAL that the subscriber's own synchronous standbys were waited for. */
static XLogRecPtr synced_local_lsn = InvalidXLogRecPtr;

/* As last told by papply_feedback_send(). */
static XLogRecPtr sent_applied_lsn = InvalidXLogRecPtr;
static XLogRecPtr sent_flushed_lsn = InvalidXLogRecPtr;

/* Where a status message has what. */
#define STATUS_RECEIVED 1
#define STATUS_FLUSHED 9
#define STATUS_APPLIED 17
#define STATUS_TIME 25
#define STATUS_REPLY_REQUESTED 33
#define STATUS_LENGTH 34

void
papply_feedback_reset(XLogRecPtr start_lsn)
{
	unflushed_first = unflushed_count = 0;
	received_lsn = Max(received_lsn, start_lsn);
	applied_lsn = flushed_lsn = received_lsn;
	sent_applied_lsn = sent_flushed_lsn = received_lsn;
}

void
papply_feedback_received(XLogRecPtr remote_lsn)
{
	received_lsn = Max(received_lsn, remote_lsn);
}

XLogRecPtr
papply_feedback_received_lsn(void)
{
	return received_lsn;
}

void
papply_feedback_committed(XLogRecPtr remote_end_lsn, XLogRecPtr local_end_lsn)
{
	Unflushed  *item;

	/* one without local changes is flushed when those before it are */
	newest_local_end_lsn = Max(newest_local_end_lsn, local_end_lsn);
	if (unflushed_count < MAX_UNFLUSHED)
		unflushed_count++;
	item = &unflushed[(unflushed_first + unflushed_count - 1) % MAX_UNFLUSHED];
	item->remote_end_lsn = remote_end_lsn;
	item->local_end_lsn = newest_local_end_lsn;
	applied_lsn = Max(applied_lsn, remote_end_lsn);
}

bool
papply_feedback_waits_for_standbys(void)
{
	return synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH &&
		SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
}

/* For the locally committed, as in the native worker's own commit. */
static void
wait_for_standbys(XLogRecPtr local_end_lsn)
{
	if (!papply_feedback_waits_for_standbys())
		return;
	HOLD_INTERRUPTS();
	SyncRepWaitForLSN(local_end_lsn, true);
	RESUME_INTERRUPTS();
	if (ProcDiePending)
		InterruptPending = true;	/* not so if the postmaster has died */
	CHECK_FOR_INTERRUPTS();		/* which may have ended the wait */
	synced_local_lsn = local_end_lsn;
}

static void
advance_flushed(bool is_idle)
{
	XLogRecPtr	local_flush_lsn = GetFlushRecPtr(NULL);

	/* flushed by the walwriter is not enough then */
	if (papply_feedback_waits_for_standbys())
		local_flush_lsn = Min(local_flush_lsn, synced_local_lsn);

	while (unflushed_count > 0 &&
		   unflushed[unflushed_first].local_end_lsn <= local_flush_lsn)
	{
		flushed_lsn = Max(flushed_lsn, unflushed[unflushed_first].remote_end_lsn);
		unflushed_first = (unflushed_first + 1) % MAX_UNFLUSHED;
		unflushed_count--;
	}
	if (unflushed_count == 0)
		flushed_lsn = Max(flushed_lsn, papply_feedback_applied_lsn(is_idle));
}

XLogRecPtr
papply_feedback_applied_lsn(bool is_idle)
{
	if (is_idle)
		applied_lsn = Max(applied_lsn, received_lsn);
	return applied_lsn;
}

XLogRecPtr
papply_feedback_flushed_lsn(bool is_idle)
{
	return unflushed_count > 0 ? flushed_lsn : papply_feedback_applied_lsn(is_idle);
}

bool
papply_feedback_has_unflushed(void)
{
	advance_flushed(false);
	return unflushed_count > 0;
}

void
papply_feedback_flush(bool may_delegate)
{
	if (unflushed_count == 0 ||
		(may_delegate && !papply_feedback_waits_for_standbys() && papply_wal_flush_wake_writer()))
		return;
	XLogFlush(newest_local_end_lsn);
	wait_for_standbys(newest_local_end_lsn);
}

void
papply_feedback_sync_earlier(void)
{
	wait_for_standbys(GetFlushRecPtr(NULL));
}

/*
 * With synchronous_commit other than off, PostgreSQL's own apply flushes (and
 * waits for standbys) before anything is visible; who waits for remote_apply on
 * the publisher relies on it.
 */
static XLogRecPtr
reported_applied_lsn(bool is_idle)
{
	XLogRecPtr	applied = papply_feedback_applied_lsn(is_idle);

	return synchronous_commit > SYNCHRONOUS_COMMIT_OFF ? flushed_lsn : applied;
}

static bool
is_status(const char *buf, int length)
{
	return length >= STATUS_LENGTH && buf[0] == 'r';
}

static void
put_uint64(char *field, uint64 value)
{
	value = pg_hton64(value);
	memcpy(field, &value, sizeof(value));
}

void
papply_feedback_rewrite(char *buf, int length, bool is_idle)
{
	if (!is_status(buf, length))
		return;
	advance_flushed(is_idle);
	put_uint64(buf + STATUS_RECEIVED, received_lsn);
	put_uint64(buf + STATUS_FLUSHED, flushed_lsn);
	put_uint64(buf + STATUS_APPLIED, reported_applied_lsn(is_idle));
}

bool
papply_feedback_parse(const char *buf, int length,
					  XLogRecPtr *flushed, XLogRecPtr *applied)
{
	if (!is_status(buf, length))
		return false;
	*flushed = papply_message_get_uint64(buf + STATUS_FLUSHED);
	*applied = papply_message_get_uint64(buf + STATUS_APPLIED);
	return true;
}

bool
papply_feedback_send(WalReceiverConn *conn, walrcv_send_fn send, bool is_idle,
					 bool also_received)
{
	char		message[STATUS_LENGTH] = {'r'};
	XLogRecPtr	applied;

	advance_flushed(is_idle);
	applied = reported_applied_lsn(is_idle);
	if (applied == sent_applied_lsn && flushed_lsn == sent_flushed_lsn && !also_received)
		return false;

	put_uint64(message + STATUS_RECEIVED, received_lsn);
	put_uint64(message + STATUS_FLUSHED, flushed_lsn);
	put_uint64(message + STATUS_APPLIED, applied);
	put_uint64(message + STATUS_TIME, GetCurrentTimestamp());
	message[STATUS_REPLY_REQUESTED] = false;
	send(conn, message, sizeof(message));

	sent_applied_lsn = applied;
	sent_flushed_lsn = flushed_lsn;
	return true;
}
