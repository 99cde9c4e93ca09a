/*-------------------------------------------------------------------------
 * coalesce.c
 *	  Send several messages of a publisher together.
 *
 * Runs in walsenders for which the setting coalesce_messages is on.
 *
 * A walsender that decodes sends each message of the output plugin by itself,
 * five or more for a small transaction.  Each of them costs a system call, and
 * wakes a subscriber that keeps up.  That is half of what a small transaction
 * costs the walsender.  This file keeps messages in the walsender's own buffer
 * until the transaction is decoded, and behind a backlog a little longer.
 *
 * The walsender writes through PqCommMethods, a table of functions that the
 * server itself replaces in parallel workers (pqmq.c).  Our table has the
 * server's functions except for three.  Each relies on the code around it in
 * walsender.c:
 * - WalSndWriteData() puts a change and flushes.  This flush may be omitted:
 *	 decoding of the record continues, and WalSndLoop() flushes when it ends.
 *	 But all changes of the transaction are freed before that, which takes long
 *	 for a large one.  So they are flushed after the end of the transaction,
 *	 unless there is a backlog.
 * - is_send_pending() reports that nothing is pending, since the walsender
 *	 would otherwise wait until the socket has taken everything.  It reports
 *	 the truth if complete transactions have been kept for long.  Then the
 *	 walsender flushes, after the next record, or when it checks for replies
 *	 within a long transaction of which the subscription gets nothing
 *	 (WalSndUpdateProgress).
 * - WalSndLoop() flushes after each record, or after several (read_on.c).
 *	 sentPtr has then advanced since the last change was put.  The flush may be
 *	 omitted as long as so much WAL remains to be decoded that no wait can be
 *	 near.
 * - Every other flush comes before a wait, or after a keepalive, and is done.
 *	 So nothing is kept while the walsender waits for WAL, a standby or the
 *	 client: WalSndWaitForWal() flushes first, and sentPtr has not advanced
 *	 since WalSndLoop() flushed.  The request for a flush, see below, is sent with these
 *	 flushes.
 *
 * A record may take long to decode: the commit of a large transaction of which
 * the subscription gets nothing, or a record that needs a catalog that a local
 * session has locked.  Kept messages then wait for it, as later ones do.  At
 * most COALESCED_BYTES wait, and complete transactions only if the publisher
 * is behind by BACKLOG_BYTES.
 *
 * While the setting is off, as by default, the server's functions are in place:
 * the postmaster replaces them if the setting is on for the server, a walsender
 * if it is on for its role or database only.  A walsender that has begun with
 * our functions has them until it ends, because its subscriber relies on its
 * requests for flushes (connection.c); a reload can end the coalescing.
 *
 * If another library has replaced these functions with its own, nothing is
 * kept: they may sleep until a standby has received what was put before.  Such
 * libraries do this when a walsender is authenticated.  That is later than the
 * postmaster, so their functions call ours.  It is earlier than the settings of
 * roles and databases, and then ours are not put over theirs.
 *
 * The alternative is an output plugin around pgoutput, which knows where
 * transactions begin and end.  But its slots would have to be created by hand,
 * and table synchronization creates slots of pgoutput.
 *
 * Requests for flushes
 *
 * A commit with synchronous_commit = on waits until the standby has flushed
 * it.  The protocol does not transmit this.  A subscriber that does not know
 * it has to flush each commit at once, which costs a write to its device and
 * several context switches, usually without a session that waits.  The
 * walsender can see whether a backend waits.  If so, it requests a reply from
 * the subscriber with a keepalive, as it may at any time.  A subscriber that
 * supports this (connection.c) flushes then, and not before.  Any other
 * subscriber just replies.
 *
 * A backend may wait after a transaction that has nothing for the subscriber.
 * It then waits for the transactions before it, which have been flushed, or
 * for which no request has been sent yet.  The server itself flushes the
 * second phase of a prepared transaction.
 *
 * A backend begins to wait some microseconds after its commit has woken the
 * walsender, which takes longer to decode the commit.  If the walsender is
 * faster nevertheless, it checks again when the subscriber reports that it has
 * received or applied the commit.
 *
 * Locking: none.  A single access reads whether the list of waiting backends
 * is empty, and the check is repeated before each wait.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

/*
 * libpq.h declares what a connection encrypted by GSSAPI needs, of which nothing
 * is used here, from headers that are not installed with those of the server.
 */
#undef ENABLE_GSS

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "libpq/libpq.h"
#include "port/pg_bswap.h"
#include "replication/slot.h"
#include "replication/walsender_private.h"
#include "utils/timestamp.h"
#ifdef PAPPLY_SELFTEST
#include "utils/timeout.h"
#include "utils/wait_event.h"
#endif

#include "coalesce.h"
#include "message.h"
#include "modules.h"
#include "test_hooks.h"

/* Without ENABLE_GSS a Port has another layout than in the server: it must not be used. */
#pragma GCC poison MyProcPort Port

/* The size of the walsender's buffer, PQ_SEND_BUFFER_SIZE in pqcomm.c. */
#define COALESCED_BYTES 8192

/* The first message may be kept for this time, longer only for one record. */
#define COALESCED_US 1000

/* Kept messages are a small part of the backlog. */
#define BACKLOG_BYTES (8 * COALESCED_BYTES)

/* The functions that the server calls through PqCommMethods. */
typedef struct Functions
{
	const PQcommMethods *server;	/* those of the server */
	PQcommMethods ours;			/* a copy of them, with the functions below */
} Functions;

static Functions functions;

/* Messages put since the last flush that was not omitted. */
typedef struct Coalesced
{
	size_t		bytes;
	TimestampTz first_put_at;
	bool		has_end;		/* of a transaction */
	bool		stays;			/* the last flush was omitted, and the
								 * walsender takes them as sent, unless
								 * knows_pending */
	bool		knows_pending;	/* the server last got the answer that they
								 * are pending */
} Coalesced;

static Coalesced coalesced;

/* The newest change. */
typedef struct NewestChange
{
	TimestampTz put_at;
	XLogRecPtr	stayed_at;		/* position of decoding when it was last put
								 * or kept */
	bool		was_just_put;	/* since the last flush, omitted or not */
} NewestChange;

static NewestChange newest;

/* This walsender. */
typedef struct Walsender
{
	uint64		flushes;		/* not counting omitted ones */
	XLogRecPtr	wal_end_lsn;	/* the end of the WAL when it was last read */
	bool		has_ended;		/* a transaction, since a flush was requested */
} Walsender;

static Walsender walsender;

/* Other output plugins than that of subscriptions have unknown messages. */
bool
papply_coalesce_concerns_us(void)
{
	return MyReplicationSlot != NULL && MyWalSnd != NULL &&
		strcmp(NameStr(MyReplicationSlot->data.plugin), "pgoutput") == 0;
}

bool
papply_coalesce_is_on(void)
{
	return papply_coalesce_messages && PqCommMethods == &functions.ours;
}

/*
 * Is this a message of the output plugin?  In CopyData it is 'w', two
 * positions, the time when it was sent (WalSndPrepareWrite), and the message.
 * Physical replication has the same format, but flushes differently.
 */
#define OFFSET_OF_TIME (1 + 2 * sizeof(uint64))
#define OFFSET_OF_MESSAGE (OFFSET_OF_TIME + sizeof(uint64))

static bool
is_change(char type, const char *data, size_t size)
{
	return type == 'd' && size >= OFFSET_OF_MESSAGE && data[0] == 'w' &&
		papply_coalesce_concerns_us();
}

/* Does this message of pgoutput complete a transaction? */
static bool
is_end(char kind)
{
	return kind == LOGICAL_REP_MSG_COMMIT || kind == LOGICAL_REP_MSG_STREAM_COMMIT ||
		kind == LOGICAL_REP_MSG_PREPARE || kind == LOGICAL_REP_MSG_STREAM_PREPARE;
}

/* Does it decide the outcome of a transaction that was sent before? */
static bool
is_outcome(char kind)
{
	return kind == LOGICAL_REP_MSG_COMMIT_PREPARED ||
		kind == LOGICAL_REP_MSG_ROLLBACK_PREPARED || kind == LOGICAL_REP_MSG_STREAM_ABORT;
}

static void
put_message(char type, const char *data, size_t size)
{
	char		kind;

	functions.server->putmessage_noblock(type, data, size);
	newest.was_just_put = is_change(type, data, size);
	if (newest.was_just_put)
	{
		newest.put_at = papply_message_get_uint64(data + OFFSET_OF_TIME);
		newest.stayed_at = MyWalSnd->sentPtr;
		kind = size > OFFSET_OF_MESSAGE ? data[OFFSET_OF_MESSAGE] : 0;
		coalesced.has_end |= is_end(kind) || is_outcome(kind);
		if (is_end(kind))
			walsender.has_ended = true; /* a backend may wait for it */
	}
	else
		coalesced.stays = false;
	if (type != 'd')
		walsender.has_ended = false;	/* changes have come to their end */
	if (coalesced.bytes == 0)
		coalesced.first_put_at = newest.put_at;
	coalesced.bytes += size;
}

/*
 * Is there so much WAL left to decode that the walsender will not wait for
 * more?  The end of the WAL is read only when it seems to be near, since
 * reading it takes a lock.
 */
static bool
is_far_behind(XLogRecPtr decoded_lsn)
{
	if (decoded_lsn + BACKLOG_BYTES >= walsender.wal_end_lsn)
		walsender.wal_end_lsn = RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetFlushRecPtr(NULL);
	return decoded_lsn + BACKLOG_BYTES < walsender.wal_end_lsn;
}

/* The clock may have been set back. */
static bool
is_late(TimestampTz now)
{
	if (papply_test_is_fast())
		return false;
	return now < coalesced.first_put_at || now - coalesced.first_put_at >= COALESCED_US;
}

/* May the messages that have been put be kept instead of being flushed? */
static bool
may_stay(void)
{
	XLogRecPtr	decoded_lsn;

	if (!papply_coalesce_is_on() || !(newest.was_just_put || coalesced.stays) ||
		coalesced.bytes >= COALESCED_BYTES)
		return false;

	/* Only this process writes it, so no lock is needed to read it. */
	Assert(MyWalSnd != NULL && MyWalSnd->pid == MyProcPid);
	decoded_lsn = MyWalSnd->sentPtr;
	if (newest.was_just_put)
		return !is_late(newest.put_at) && (!coalesced.has_end || is_far_behind(decoded_lsn));
	if (decoded_lsn == newest.stayed_at || !is_far_behind(decoded_lsn))
		return false;
	newest.stayed_at = decoded_lsn;
	return true;
}

/* Request a flush if a backend waits for one that has not been requested. */
static void
ask_if_due(void)
{
	char		message[1 + 2 * sizeof(uint64) + 1] = {'k'};	/* a keepalive */
	uint64		sent_lsn;
	uint64		now;

	if (!papply_coalesce_concerns_us() || !walsender.has_ended ||
		MyWalSnd->sync_standby_priority == 0 || !papply_compat_flush_is_awaited())
		return;
	walsender.has_ended = false;
	sent_lsn = pg_hton64(MyWalSnd->sentPtr);
	now = pg_hton64((uint64) GetCurrentTimestamp());
	memcpy(message + 1, &sent_lsn, sizeof(sent_lsn));
	memcpy(message + 1 + sizeof(sent_lsn), &now, sizeof(now));
	message[sizeof(message) - 1] = true;	/* a reply is requested */
	functions.server->putmessage_noblock('d', message, sizeof(message));
}

#ifdef PAPPLY_SELFTEST

/* Check this often whether the walsender sleeps while messages are kept. */
#define CHECK_MS 20

static TimeoutId check_timeout = MAX_TIMEOUTS;

/*
 * End the server if the walsender waits for its client or for WAL while
 * messages are kept.  It may wait until it can send them, if it knows that they
 * are pending, and for a lock or for storage.
 */
static void
check_sleep(void)
{
	uint32		class = *my_wait_event_info & 0xFF000000;

	if (!coalesced.stays)
		return;
	if (!coalesced.knows_pending && (class == PG_WAIT_ACTIVITY || class == PG_WAIT_CLIENT))
	{
		write_stderr("walsender sleeps while messages are kept\n");
		abort();
	}
	enable_timeout_after(check_timeout, CHECK_MS);
}

static void
begin_checks(void)
{
	if (check_timeout == MAX_TIMEOUTS)
		check_timeout = RegisterTimeout(USER_TIMEOUT, check_sleep);
	if (!get_timeout_active(check_timeout))
		enable_timeout_after(check_timeout, CHECK_MS);
}
#endif

static int
flush_if_writable(void)
{
	coalesced.stays = may_stay();
#ifdef PAPPLY_SELFTEST
	if (coalesced.stays)
		begin_checks();
#endif
	newest.was_just_put = false;
	if (coalesced.stays)
		return 0;
	ask_if_due();
	coalesced.bytes = 0;
	coalesced.has_end = false;
	walsender.flushes++;
	return functions.server->flush_if_writable();
}

/*
 * At the end of a command, everything is sent, and the walsender waits for that.
 * A stream may end in the middle of a transaction, when messages are kept.
 */
static int
flush(void)
{
	newest.was_just_put = coalesced.has_end = coalesced.stays = false;
	coalesced.bytes = 0;
	walsender.flushes++;
	return functions.server->flush();
}

uint64
papply_coalesce_flushes(void)
{
	return walsender.flushes;
}

static bool
is_send_pending(void)
{
	bool		must_report = !coalesced.stays || (coalesced.has_end && is_late(GetCurrentTimestamp()));

	coalesced.knows_pending = must_report && functions.server->is_send_pending();
	return coalesced.knows_pending;
}

bool
papply_coalesce_must_send(XLogRecPtr decoded_lsn)
{
	return functions.server->is_send_pending() && !(coalesced.stays && is_far_behind(decoded_lsn));
}

void
papply_coalesce_init(void)
{
	functions.server = PqCommMethods;
	functions.ours = *functions.server;
	functions.ours.putmessage_noblock = put_message;
	functions.ours.flush_if_writable = flush_if_writable;
	functions.ours.flush = flush;
	functions.ours.is_send_pending = is_send_pending;
}

/*
 * The next flush sends the messages that are kept.  A walsender that has begun
 * has its slot.
 */
void
papply_coalesce_switch(bool is_on)
{
	coalesced.bytes = 0;
	newest.was_just_put = coalesced.has_end = coalesced.stays = false;
	if (is_on && PqCommMethods == functions.server)
		PqCommMethods = &functions.ours;
	if (!is_on && PqCommMethods == &functions.ours && MyReplicationSlot == NULL)
		PqCommMethods = functions.server;
}
