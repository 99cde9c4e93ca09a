/*-------------------------------------------------------------------------
 * feedback.c
 *	  Keep the positions that are reported to the publisher.
 *
 * Runs in the receiver, while there is a pool.
 *
 * Three positions of the publisher's WAL are reported: received ("write"),
 * committed and visible ("apply"), and flushed ("flush").  The core apply
 * loop takes everything that it has got as applied, so its status messages are
 * rewritten.  When positions move, the receiver sends messages of its own:  a
 * backend of the publisher may be waiting for them (synchronous replication),
 * and the protocol does not tell whether one is.
 *
 * "Received" is what has been put into the queue or the spool.  The publisher
 * calls that written, which has no further meaning for a logical subscriber,
 * and is all that a session with remote_write waits for.
 *
 * Writers commit asynchronously, whatever the subscription's
 * synchronous_commit is.  A spare writer flushes once for many commits
 * (wal_flush.c); under backlog the walwriter does it.  A position is confirmed
 * when the local commits up to it are flushed.
 *
 * While nothing is in flight, the newest position seen in any message counts
 * as applied.  The publisher must be able to remove WAL that has nothing for
 * this subscription.
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
 * Commits that are not flushed.  When the array is full, the newest entry
 * stands for later commits as well, so they are confirmed a little later.
 */
#define MAX_UNFLUSHED 1024

typedef struct Unflushed
{
	XLogRecPtr	remote_end_lsn;
	XLogRecPtr	local_end_lsn;
} Unflushed;

/* A ring. */
typedef struct UnflushedCommits
{
	Unflushed	items[MAX_UNFLUSHED];
	int			first;
	int			count;
} UnflushedCommits;

static UnflushedCommits unflushed;

typedef struct Positions
{
	/* in the publisher's WAL; they never decrease */
	XLogRecPtr	received_lsn;
	XLogRecPtr	applied_lsn;
	XLogRecPtr	flushed_lsn;

	/* as last sent by papply_feedback_send() */
	XLogRecPtr	sent_applied_lsn;
	XLogRecPtr	sent_flushed_lsn;

	/* in the subscriber's WAL */
	XLogRecPtr	newest_local_end_lsn;	/* of the last local commit; never
										 * decreases */
	XLogRecPtr	synced_local_lsn;	/* the subscriber's own synchronous
									 * standbys have WAL up to here */
} Positions;

static Positions positions;

/* Offsets of the fields of a status message. */
#define STATUS_RECEIVED 1
#define STATUS_FLUSHED 9
#define STATUS_APPLIED 17
#define STATUS_TIME 25
#define STATUS_LENGTH 34		/* the last byte requests a reply */

void
papply_feedback_reset(XLogRecPtr start_lsn)
{
	unflushed.first = unflushed.count = 0;
	positions.received_lsn = Max(positions.received_lsn, start_lsn);
	positions.applied_lsn = positions.flushed_lsn = positions.received_lsn;
	positions.sent_applied_lsn = positions.sent_flushed_lsn = positions.received_lsn;
}

void
papply_feedback_received(XLogRecPtr remote_lsn)
{
	positions.received_lsn = Max(positions.received_lsn, remote_lsn);
}

XLogRecPtr
papply_feedback_received_lsn(void)
{
	return positions.received_lsn;
}

void
papply_feedback_committed(XLogRecPtr remote_end_lsn, XLogRecPtr local_end_lsn)
{
	Unflushed  *item;

	/* a commit without local changes is flushed with those before it */
	positions.newest_local_end_lsn = Max(positions.newest_local_end_lsn, local_end_lsn);
	if (unflushed.count < MAX_UNFLUSHED)
		unflushed.count++;
	item = &unflushed.items[(unflushed.first + unflushed.count - 1) % MAX_UNFLUSHED];
	Assert(unflushed.count <= MAX_UNFLUSHED);
	item->remote_end_lsn = remote_end_lsn;
	item->local_end_lsn = positions.newest_local_end_lsn;
	positions.applied_lsn = Max(positions.applied_lsn, remote_end_lsn);
}

bool
papply_feedback_waits_for_standbys(void)
{
	return synchronous_commit > SYNCHRONOUS_COMMIT_LOCAL_FLUSH &&
		SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
}

/* Wait as the apply worker does in its own commit. */
static void
wait_for_standbys(XLogRecPtr local_end_lsn)
{
	if (!papply_feedback_waits_for_standbys())
		return;
	HOLD_INTERRUPTS();
	SyncRepWaitForLSN(local_end_lsn, true);
	RESUME_INTERRUPTS();
	if (ProcDiePending)
		InterruptPending = true;	/* SyncRepWaitForLSN() omits that if the
									 * postmaster has died */
	CHECK_FOR_INTERRUPTS();		/* an interrupt may have ended the wait */
	positions.synced_local_lsn = local_end_lsn;
}

static void
advance_flushed(bool is_idle)
{
	XLogRecPtr	local_flush_lsn = GetFlushRecPtr(NULL);

	/* then it is not enough that the walwriter has flushed */
	if (papply_feedback_waits_for_standbys())
		local_flush_lsn = Min(local_flush_lsn, positions.synced_local_lsn);

	while (unflushed.count > 0 &&
		   unflushed.items[unflushed.first].local_end_lsn <= local_flush_lsn)
	{
		positions.flushed_lsn = Max(positions.flushed_lsn,
									unflushed.items[unflushed.first].remote_end_lsn);
		unflushed.first = (unflushed.first + 1) % MAX_UNFLUSHED;
		unflushed.count--;
	}
	if (unflushed.count == 0)
		positions.flushed_lsn = Max(positions.flushed_lsn, papply_feedback_applied_lsn(is_idle));
	Assert(positions.flushed_lsn <= positions.applied_lsn);
}

XLogRecPtr
papply_feedback_applied_lsn(bool is_idle)
{
	if (is_idle)
		positions.applied_lsn = Max(positions.applied_lsn, positions.received_lsn);
	return positions.applied_lsn;
}

XLogRecPtr
papply_feedback_flushed_lsn(bool is_idle)
{
	return unflushed.count > 0 ? positions.flushed_lsn : papply_feedback_applied_lsn(is_idle);
}

bool
papply_feedback_has_unflushed(void)
{
	advance_flushed(false);
	return unflushed.count > 0;
}

void
papply_feedback_flush(bool may_delegate)
{
	if (unflushed.count == 0 ||
		(may_delegate && !papply_feedback_waits_for_standbys() && papply_wal_flush_wake_writer()))
		return;
	XLogFlush(positions.newest_local_end_lsn);
	wait_for_standbys(positions.newest_local_end_lsn);
}

void
papply_feedback_sync_earlier(void)
{
	wait_for_standbys(GetFlushRecPtr(NULL));
}

/*
 * Return the position to report as applied.  With synchronous_commit other
 * than off, PostgreSQL's own apply flushes (and waits for standbys) before
 * anything becomes visible, and sessions of the publisher that wait for
 * remote_apply rely on that.
 */
static XLogRecPtr
reported_applied_lsn(bool is_idle)
{
	XLogRecPtr	applied = papply_feedback_applied_lsn(is_idle);

	return synchronous_commit > SYNCHRONOUS_COMMIT_OFF ? positions.flushed_lsn : applied;
}

/*
 * Any other length is another layout, and the message must not go out as the server has made
 * it: what the server takes for flushed need not be.
 */
static bool
is_status(const char *buf, int length)
{
	if (length < 1 || buf[0] != 'r')
		return false;
	if (length != STATUS_LENGTH)
		elog(ERROR, "unexpected length %d of a status message", length);
	return true;
}

/*
 * The core apply loop synchronizes tables by the position that it sends as
 * received.  That is the one of the last keepalive that it has got.
 */
static void
check_native_position(XLogRecPtr native_lsn)
{
	if (native_lsn > positions.applied_lsn)
		elog(ERROR, "apply loop is at %X/%X, beyond %X/%X, up to which changes are applied",
			 LSN_FORMAT_ARGS(native_lsn), LSN_FORMAT_ARGS(positions.applied_lsn));
}

static void
put_uint64(char *field, uint64 value)
{
	value = pg_hton64(value);
	memcpy(field, &value, sizeof(value));
}

const char *
papply_feedback_rewrite(const char *buf, int length, bool is_idle)
{
	static char status[STATUS_LENGTH];

	if (!is_status(buf, length))
		return buf;
	check_native_position(papply_message_get_uint64(buf + STATUS_RECEIVED));
	memcpy(status, buf, STATUS_LENGTH);
	advance_flushed(is_idle);
	put_uint64(status + STATUS_RECEIVED, positions.received_lsn);
	put_uint64(status + STATUS_FLUSHED, positions.flushed_lsn);
	put_uint64(status + STATUS_APPLIED, reported_applied_lsn(is_idle));
	return status;
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
	if (applied == positions.sent_applied_lsn &&
		positions.flushed_lsn == positions.sent_flushed_lsn && !also_received)
		return false;

	put_uint64(message + STATUS_RECEIVED, positions.received_lsn);
	put_uint64(message + STATUS_FLUSHED, positions.flushed_lsn);
	put_uint64(message + STATUS_APPLIED, applied);
	put_uint64(message + STATUS_TIME, GetCurrentTimestamp());
	send(conn, message, sizeof(message));

	positions.sent_applied_lsn = applied;
	positions.sent_flushed_lsn = positions.flushed_lsn;
	return true;
}
