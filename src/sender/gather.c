/*-------------------------------------------------------------------------
 * gather.c
 *	  Messages of a publisher that are sent together.
 *
 * Runs in walsenders, on a publisher that preloads the library.
 *
 * A walsender that decodes sends each message of the output plugin by itself,
 * five or more for a small transaction: a system call each, and a subscriber that
 * keeps up is woken by each.  That is half of what a small transaction costs the
 * walsender.  Here they stay in the buffer that the walsender has anyway, until
 * its transaction is decoded, and behind a backlog a little longer.
 *
 * What a walsender writes goes through PqCommMethods, a table of functions that
 * the server itself exchanges in parallel workers (pqmq.c).  Ours is the server's
 * but for three functions.  Each relies on what walsender.c does around it:
 * - WalSndWriteData() puts a change and flushes.  This flush may be left out: the
 *	 decoding of the record goes on, and when it ends WalSndLoop() flushes.  But
 *	 before that, all changes of the transaction are freed, which takes long for a
 *	 large one; so after its end they are flushed, unless there is a backlog.
 * - is_send_pending() says that nothing is left, else it would wait until the
 *	 socket has taken it all; unless transactions have stayed for long.  Then the
 *	 walsender flushes, after the next record, or when it looks for replies within a long
 *	 transaction of which the subscription gets nothing (WalSndUpdateProgress).
 * - WalSndLoop() flushes after each record, or after several (read_on.c).  sentPtr
 *	 has moved since the last change was put then.  The flush may be left out while
 *	 so much WAL is to be decoded still that no wait can be near.
 * - Every other flush comes before a wait, or after a keepalive, and is done.  So
 *	 nothing is kept while the walsender waits for WAL, a standby or the client:
 *	 WalSndWaitForWal() flushes first, and sentPtr has not moved since WalSndLoop()
 *	 did.  What ask.c has to say goes with them.
 *
 * A record may take long to decode: the commit of a large transaction of which the
 * subscription gets nothing, or one that needs a catalog which a local session has
 * locked.  What is kept then waits for it, as what comes after it does: at most
 * GATHERED_BYTES, and complete transactions only if the publisher is behind by
 * BACKLOG_BYTES.
 *
 * While the setting is off, the server's functions are in place.
 *
 * Where another library has put functions of its own over these, nothing is kept: it may
 * sleep in them until a standby has what was put before.
 *
 * The alternative, an output plugin around pgoutput, knows where transactions
 * begin and end; but slots have to be made for it by hand, and those that the
 * synchronisation of tables makes are pgoutput's.
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
#include "replication/logicalproto.h"
#include "replication/slot.h"
#include "replication/walsender_private.h"
#include "utils/timestamp.h"

#include "ask.h"
#include "gather.h"

/* Without ENABLE_GSS a Port has another layout than in the server: it must not be used. */
#pragma GCC poison MyProcPort Port

/* That of the walsender's buffer, PQ_SEND_BUFFER_SIZE in pqcomm.c. */
#define GATHERED_BYTES 8192

/* For so long the first of them may stay, and for a record longer. */
#define GATHERED_US 1000

/* What stays is little beside what the publisher is behind by. */
#define BACKLOG_BYTES (8 * GATHERED_BYTES)

/* The server's. */
static const PQcommMethods *methods;

/* Ours, with which the server calls the functions below. */
static PQcommMethods gathering;

/* What has been put since the last flush that was done. */
static size_t gathered_bytes = 0;
static TimestampTz first_put_at;

/* The newest change, and where decoding had come to when it was put or last stayed. */
static TimestampTz last_put_at;
static XLogRecPtr stayed_at;

static uint64 flushes = 0;		/* that were done */

static bool was_just_put = false;	/* since the last flush, done or not */
static bool has_end = false;	/* of a transaction, since the last flush that
								 * was done */
static bool stays = false;		/* the walsender thinks that it has been sent */

/* The plugin of subscriptions; what others write is not known here. */
bool
papply_gather_concerns_us(void)
{
	return MyReplicationSlot != NULL && MyWalSnd != NULL &&
		strcmp(NameStr(MyReplicationSlot->data.plugin), "pgoutput") == 0;
}

/*
 * Is this a change, or what else the output plugin writes?  In CopyData it is 'w',
 * two positions, the time when it was sent (WalSndPrepareWrite), and the message.
 * Physical replication has the same, but flushes otherwise.
 */
#define OFFSET_OF_TIME (1 + 2 * sizeof(uint64))
#define OFFSET_OF_MESSAGE (OFFSET_OF_TIME + sizeof(uint64))

static bool
is_change(char type, const char *data, size_t size)
{
	return type == 'd' && size >= OFFSET_OF_MESSAGE && data[0] == 'w' &&
		papply_gather_concerns_us();
}

/* Does pgoutput say in this change that a transaction is complete? */
static bool
is_end(char kind)
{
	return kind == LOGICAL_REP_MSG_COMMIT || kind == LOGICAL_REP_MSG_STREAM_COMMIT ||
		kind == LOGICAL_REP_MSG_PREPARE || kind == LOGICAL_REP_MSG_STREAM_PREPARE;
}

/* Or what becomes of one that was sent before? */
static bool
is_outcome(char kind)
{
	return kind == LOGICAL_REP_MSG_COMMIT_PREPARED ||
		kind == LOGICAL_REP_MSG_ROLLBACK_PREPARED || kind == LOGICAL_REP_MSG_STREAM_ABORT;
}

static void
put_message(char type, const char *data, size_t size)
{
	uint64		time;
	char		kind;

	methods->putmessage_noblock(type, data, size);
	was_just_put = is_change(type, data, size);
	if (was_just_put)
	{
		memcpy(&time, data + OFFSET_OF_TIME, sizeof(time));
		last_put_at = (TimestampTz) pg_ntoh64(time);
		stayed_at = MyWalSnd->sentPtr;
		kind = size > OFFSET_OF_MESSAGE ? data[OFFSET_OF_MESSAGE] : 0;
		has_end |= is_end(kind) || is_outcome(kind);
		if (is_end(kind))
			papply_ask_put();
	}
	else
		stays = false;
	if (type != 'd')
		papply_ask_forget();	/* changes have come to their end */
	if (gathered_bytes == 0)
		first_put_at = last_put_at;
	gathered_bytes += size;
}

/*
 * Is there so much WAL still to be decoded that the walsender will not wait for
 * more?  The end of the WAL is looked up only when it seems to be near, since
 * that takes a lock.
 */
static bool
is_far_behind(XLogRecPtr decoded_lsn)
{
	static XLogRecPtr end_lsn = InvalidXLogRecPtr;

	if (decoded_lsn + BACKLOG_BYTES >= end_lsn)
		end_lsn = RecoveryInProgress() ? GetXLogReplayRecPtr(NULL) : GetFlushRecPtr(NULL);
	return decoded_lsn + BACKLOG_BYTES < end_lsn;
}

/* The clock may have been set back. */
static bool
is_late(TimestampTz now)
{
	return now < first_put_at || now - first_put_at >= GATHERED_US;
}

/* May what has been put stay, instead of being flushed? */
static bool
may_stay(void)
{
	XLogRecPtr	decoded_lsn;

	if (!papply_coalesce_messages || PqCommMethods != &gathering ||
		!(was_just_put || stays) || gathered_bytes >= GATHERED_BYTES)
		return false;

	/* Only this process writes it, so no lock is needed to read it. */
	decoded_lsn = MyWalSnd->sentPtr;
	if (was_just_put)
		return !is_late(last_put_at) && (!has_end || is_far_behind(decoded_lsn));
	if (decoded_lsn == stayed_at || !is_far_behind(decoded_lsn))
		return false;
	stayed_at = decoded_lsn;
	return true;
}

/* See ask.c. */
static void
ask_if_due(void)
{
	char		message[PAPPLY_ASK_LENGTH];

	if (!papply_gather_concerns_us() || !papply_ask_is_due())
		return;
	papply_ask_make(message);
	methods->putmessage_noblock('d', message, sizeof(message));
}

static int
flush_if_writable(void)
{
	stays = may_stay();
	was_just_put = false;
	if (stays)
		return 0;
	ask_if_due();
	gathered_bytes = 0;
	has_end = false;
	flushes++;
	return methods->flush_if_writable();
}

uint64
papply_gather_flushes(void)
{
	return flushes;
}

static bool
is_send_pending(void)
{
	return (!stays || (has_end && is_late(GetCurrentTimestamp()))) &&
		methods->is_send_pending();
}

bool
papply_gather_must_send(XLogRecPtr decoded_lsn)
{
	return methods->is_send_pending() && !(stays && is_far_behind(decoded_lsn));
}

void
papply_gather_init(void)
{
	methods = PqCommMethods;
	gathering = *methods;
	gathering.putmessage_noblock = put_message;
	gathering.flush_if_writable = flush_if_writable;
	gathering.is_send_pending = is_send_pending;
}

/* What has been kept is sent by the server's next flush. */
void
papply_gather_switch(bool is_on)
{
	gathered_bytes = 0;
	was_just_put = has_end = stays = false;
	if (PqCommMethods == (is_on ? methods : &gathering))
		PqCommMethods = is_on ? &gathering : methods;
}
