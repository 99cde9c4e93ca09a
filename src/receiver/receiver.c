/*-------------------------------------------------------------------------
 * receiver.c
 *	  What happens when the native apply worker asks for the next message.
 *
 * Runs in the leader apply worker of a subscription, called through the seam.
 * The stages: receive a message, route it, put it into the queue (dispatch.c)
 * or hand it to the native loop (native_replay.c), report positions
 * (feedback.c).
 *
 * The native loop calls receive() until it returns 0, then does its own
 * housekeeping and sleeps on its latch and the socket that we returned.  So
 * receive() never waits.  What was put into the queue looks to the native loop
 * like nothing at all; now and then it gets a keepalive, which resets its
 * timers.  The position in a keepalive is the one up to which everything is
 * committed, never the received one: the native loop synchronises tables by
 * its idea of what was received, and to it that is the same as applied.
 *
 * When the queue is full, or has to be drained, the message is held and the
 * native loop sleeps on a socket that is never readable, and on its latch,
 * which writers set: that is the back-pressure.  The connection lives on,
 * since the loop goes round at least every second.
 *
 * If this process ends, for whatever reason, its exit callback closes the gate
 * and waits for the writers to be gone.  What they did not commit is fetched
 * again by the next one, from the replication origin.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <sys/socket.h>

#include "access/xlog.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "replication/walreceiver.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "commit_order.h"
#include "dispatch.h"
#include "feedback.h"
#include "native_replay.h"
#include "queue.h"
#include "receiver.h"
#include "relation_registry.h"
#include "remote_relation.h"
#include "seam.h"
#include "stream_chunk.h"
#include "writer_control.h"

/* A 'w' message: kind, start, end, time; then the payload. */
#define HEADER_LENGTH 25

/* The native loop gets a turn at least this often. */
#define YIELD_INTERVAL_MS 100

/* It gets a keepalive at least this often, if wal_receiver_timeout allows it. */
#define KEEPALIVE_INTERVAL_MS 1000

/*
 * With so many transactions unclaimed there is no hurry to read: the next ones
 * are read in a burst when half of them are done.  A reader that takes each
 * message at once makes the walsender pay a system call for each, and pays
 * several itself.
 */
#define BURST_BACKLOG 64

/* Look for writers that could not start; start a pool again that could not. */
#define WRITERS_INTERVAL_MS 1000
#define POOL_INTERVAL_MS 60000

/* What to do with a received message. */
typedef enum Route
{
	ROUTE_DONE,					/* nothing */
	ROUTE_NATIVE,				/* return it */
	ROUTE_BEFORE,				/* return another one first, hold this */
	ROUTE_HOLD					/* hold it */
} Route;

static bool is_initialized = false;
static bool has_pool = false;
static bool is_closing = false; /* the pool ends when it is drained */
static bool has_failed = false; /* because it has no writers */
static PapplyOriginId origin = PAPPLY_NO_ORIGIN;
static int	wanted_writers = 1; /* as last acted upon */

/* Invalidations; set by callbacks. */
static bool extension_is_current = false;
static bool has_extension = false;
static bool tables_are_current = false;
static bool has_unready_tables = false;

/* A message that could not be routed; still in the connection's buffer. */
static char *held = NULL;
static int	held_length = 0;

static pgsocket quiet_socket = PGINVALID_SOCKET;
static XLogRecPtr replay_final_lsn = InvalidXLogRecPtr; /* see pool.h */
static uint64 flush_target = 0; /* flush when so many are committed */

/* When did we last ... */
static TimestampTz yielded_at = 0;
static TimestampTz keepalive_at = 0;
static XLogRecPtr keepalive_lsn = InvalidXLogRecPtr;
static TimestampTz checked_at = 0;

/*** invalidation ***/

static void
invalidate_extension(Datum arg, int cacheid, uint32 hashvalue)
{
	extension_is_current = false;
}

static void
invalidate_tables(Datum arg, int cacheid, uint32 hashvalue)
{
	tables_are_current = false;
}

/*
 * Is the extension there, are tables not READY?  Both are asked between remote
 * transactions only, and need a transaction of their own.
 */
static void
look_at_catalogs(void)
{
	MemoryContext old_context = CurrentMemoryContext;

	AcceptInvalidationMessages();
	if (likely(extension_is_current && tables_are_current))
		return;

	StartTransactionCommand();
	if (!extension_is_current)
	{
		/* its functions come and go with it, hence the syscache callback */
		extension_is_current = true;
		has_extension = OidIsValid(get_extension_oid(PAPPLY_NAME, true));
	}
	if (!tables_are_current)
	{
		tables_are_current = true;
		has_unready_tables = papply_compat_has_unready_tables(MySubscription->oid);
		papply_remote_relation_forget_native();
	}
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
}

static int
get_wanted_writers(void)
{
	if (!has_extension || papply_compat_subscription_is_native())
		return 1;
	return papply_guc_writers();
}

static void
initialize(void)
{
	int			sockets[2];

	if (is_initialized)
		return;
	is_initialized = true;

	papply_remote_relation_init();
	CacheRegisterSyscacheCallback(PROCOID, invalidate_extension, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, invalidate_tables, (Datum) 0);

	/* the other end stays open, and nobody writes to it */
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not create socket: %m")));
	quiet_socket = sockets[0];
}

bool
papply_receiver_wants_pool(void)
{
	initialize();
	look_at_catalogs();
	return get_wanted_writers() > 1;
}

/*** the life of the pool ***/

/* All that was received is committed. */
static bool
is_idle(void)
{
	return !papply_native_is_active() && !papply_dispatch_is_open() &&
		papply_queue_released_seqno() == papply_queue_last_seqno();
}

static void
end_pool(bool must_hurry)
{
	papply_pool_close();
	papply_writers_end(must_hurry);
	ereport(LOG,
			(errmsg("parallel apply of subscription \"%s\" has stopped",
					MySubscription->name)));
	papply_pool_release();
	has_pool = false;
}

static void
drop_shared_memory(void)
{
	papply_queue_detach();
	papply_registry_detach();
}

/*
 * This runs before the launcher is told that the worker is gone, and starts
 * the next one.  Unmapping the queue and releasing the origin would come after
 * that by themselves, and the next one would find the origin in use.
 */
static void
end_pool_at_exit(int code, Datum arg)
{
	if (papply_pool == NULL)
		return;
	end_pool(true);
	PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;	/* an abort may advance it */
	AbortOutOfAnyTransaction();
	papply_native_abandon();
	drop_shared_memory();
}

/*
 * Create the shared memory of a pool.  Whatever fails must not fail the
 * subscription: it goes on without.
 */
static bool
create_shared_memory(void)
{
	MemoryContext old_context = CurrentMemoryContext;
	volatile bool is_created = false;
	const char *volatile reason = "too many dynamic shared memory segments";

	PG_TRY();
	{
		is_created = papply_queue_create();
		if (is_created)
			papply_registry_create();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		reason = CopyErrorData()->message;
		FlushErrorState();
		is_created = false;
	}
	PG_END_TRY();

	if (!is_created)
		ereport(WARNING,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not create the queue of subscription \"%s\"",
						MySubscription->name),
				 errdetail("PostgreSQL's own apply goes on: %s.", reason),
				 errhint("You might need to decrease \"%s\".", PAPPLY_NAME ".queue_size")));
	return is_created;
}

static void
start_pool(void)
{
	static bool has_exit_callback = false;
	int			running;

	if (!papply_pool_acquire(MyLogicalRepWorker->dbid, MySubscription->oid,
							 MyLogicalRepWorker->userid, PAPPLY_SESSION_ORIGIN))
		return;
	if (!has_exit_callback)
		before_shmem_exit(end_pool_at_exit, (Datum) 0);
	has_exit_callback = true;

	if (!create_shared_memory())
	{
		drop_shared_memory();
		papply_pool_release();
		return;
	}
	running = papply_writers_set(wanted_writers, MySubscription->name);
	if (running == 0)
	{
		drop_shared_memory();
		papply_pool_release();
		return;
	}

	origin = PAPPLY_SESSION_ORIGIN;
	checked_at = GetCurrentTimestamp();
	papply_feedback_reset(replorigin_session_get_progress(true));
	papply_compat_origin_pass_on();
	if (!PAPPLY_ORIGIN_IS_SHARED)
		PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	papply_dispatch_reset();
	papply_remote_relation_pool_started();
	replay_final_lsn = papply_pool_get_replay(MySubscription->oid);
	keepalive_lsn = InvalidXLogRecPtr;
	flush_target = 0;
	is_closing = false;
	has_pool = true;
	ereport(LOG,
			(errmsg_plural("parallel apply of subscription \"%s\" has started with %d writer",
						   "parallel apply of subscription \"%s\" has started with %d writers",
						   running, MySubscription->name, running)));
}

/* The pool is drained and the native loop knows all relations. */
static void
stop_pool(void)
{
	papply_feedback_flush();
	end_pool(false);
	drop_shared_memory();
	papply_remote_relation_pool_stopped();
	papply_compat_origin_take(origin);
	PAPPLY_SESSION_ORIGIN = origin;
	is_closing = false;

	/* start again at once, if that was wanted meanwhile; or later */
	wanted_writers = has_failed ? get_wanted_writers() : 1;
	has_failed = false;
	checked_at = GetCurrentTimestamp();
}

static void
restart_worker(const char *reason)
{
	ereport(LOG,
			(errmsg("logical replication apply worker for subscription \"%s\" will restart because %s",
					MySubscription->name, reason)));
	proc_exit(1);
}

static bool
is_time_for(TimestampTz *last, int interval_ms)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(*last, now, interval_ms))
		return false;
	*last = now;
	return true;
}

/* The number of writers follows the settings. */
static void
adjust_pool(void)
{
	int			wanted = get_wanted_writers();
	bool		has_changed = (wanted != wanted_writers);

	if (has_pool)
	{
		if (wanted == 1)
			is_closing = true;
		else if (has_changed && !is_closing)
			(void) papply_writers_set(wanted, MySubscription->name);
		wanted_writers = wanted;
	}
	else if (wanted > 1 && (has_changed || is_time_for(&checked_at, POOL_INTERVAL_MS)))
	{
		wanted_writers = wanted;
		if (papply_compat_streams_in_parallel())
			restart_worker("transactions are to be applied in parallel");
		checked_at = GetCurrentTimestamp();
		start_pool();
	}
	else
		wanted_writers = wanted;
}

/*** progress of the pool ***/

/*
 * Writers are registered, but cannot start (no connection is left for them,
 * say).  What they have not claimed goes to the native loop, and the pool ends
 * for a while.
 */
static void
give_up_writers(void)
{
	papply_queue_mark_unclaimed_native();
	is_closing = true;
	has_failed = true;
}

/* Give back what is committed, and look whether all writers are well. */
static void
watch_pool(void)
{
	PapplyTransaction *txn;
	int			exited;

	if (!is_closing && is_time_for(&checked_at, WRITERS_INTERVAL_MS) &&
		papply_writers_check(MySubscription->name) == 0)
		give_up_writers();

	while ((txn = papply_queue_oldest_committed()) != NULL)
	{
		papply_feedback_committed(txn->remote_end_lsn, txn->local_end_lsn);
		papply_queue_release();
	}
	papply_remote_relation_clean(papply_queue_released_seqno());

	exited = pg_atomic_read_u64(&papply_pool->exited_writer);
	if (exited > 0)
		restart_worker(psprintf("writer %d has ended unexpectedly", exited));
}

/* The native loop has committed what it got, if it got a whole transaction. */
static void
finish_native(void)
{
	XLogRecPtr	remote_end_lsn;
	uint64		seqno = papply_native_seqno();

	if (!papply_native_finish(&remote_end_lsn) || !has_pool)
		return;
	if (remote_end_lsn == InvalidXLogRecPtr)
		remote_end_lsn = papply_feedback_received_lsn();

	if (seqno == PAPPLY_NO_SEQNO)
		papply_feedback_committed(remote_end_lsn, XactLastCommitEnd);
	else
	{
		if (papply_dispatch_is_open() && seqno == papply_queue_last_seqno())
			papply_dispatch_end_direct(remote_end_lsn);
		papply_commit_order_advance(seqno, seqno, XactLastCommitEnd);
	}
	if (replay_final_lsn != InvalidXLogRecPtr && remote_end_lsn > replay_final_lsn)
	{
		replay_final_lsn = InvalidXLogRecPtr;
		papply_pool_set_replay(InvalidXLogRecPtr);
	}
}

/*
 * Is the oldest transaction one for the native loop?  Its bytes may be gone if
 * it is larger than the queue: then it has to be fetched again, and the pool
 * remembers not to try it a second time.
 */
static void
begin_due_replay(void)
{
	uint64		seqno = papply_commit_order_committed() + 1;
	PapplyTransaction *txn;

	if (seqno > papply_queue_last_seqno())
		return;
	txn = papply_queue_transaction(seqno);
	if (!(pg_atomic_read_u32(&txn->flags) & PAPPLY_TXN_NATIVE))
		return;
	if (pg_atomic_read_u32(&txn->hold) == PAPPLY_TXN_STREAMED)
	{
		papply_pool_set_replay(txn->final_lsn);
		restart_worker("a transaction larger than the queue could not be applied by a writer");
	}
	if (papply_dispatch_is_open() && seqno == papply_queue_last_seqno())
		papply_queue_publish_open();
	papply_native_begin_queued(seqno, origin);
}

/* Asked at a BEGIN: does PostgreSQL's own apply have to do it? */
static bool
must_be_direct(XLogRecPtr final_lsn)
{
	look_at_catalogs();
	return is_closing || has_unready_tables ||
		MySubscription->skiplsn != InvalidXLogRecPtr ||
		(replay_final_lsn != InvalidXLogRecPtr && final_lsn == replay_final_lsn);
}

/*** routing ***/

/* A message for the native loop, which is in a transaction or begins one. */
static Route
route_native(char *message, int length, char **buffer, int *result)
{
	*result = papply_native_before(message, length, buffer);
	if (*result > 0)
		return ROUTE_BEFORE;
	papply_chunk_end(message);
	if (message[0] == LOGICAL_REP_MSG_RELATION)
	{
		PapplyRemoteRelation *rel;

		papply_remote_relation_update(message, length,
									  has_pool ? papply_queue_last_seqno() : 0);
		rel = papply_remote_relation_get(papply_message_get_uint32(message + 1), false);
		rel->native_version = rel->version;
	}
	return ROUTE_NATIVE;
}

static bool
begins_native(char kind)
{
	return kind != LOGICAL_REP_MSG_RELATION && kind != LOGICAL_REP_MSG_TYPE &&
		kind != LOGICAL_REP_MSG_MESSAGE && kind != LOGICAL_REP_MSG_ORIGIN;
}

/* Without a pool everything goes to the native loop; only boundaries count. */
static Route
route_without_pool(char *message, int length, char **buffer, int *result)
{
	if (begins_native(message[0]))
		papply_native_begin_direct(PAPPLY_NO_ORIGIN);
	return route_native(message, length, buffer, result);
}

static Route
route_payload(char *message, int length, char **buffer, int *result)
{
	if (length < 1 || papply_chunk_take(message, length))
		return ROUTE_NATIVE;	/* spooled by the native loop */
	if (papply_native_is_active())
		return route_native(message, length, buffer, result);
	if (!has_pool)
		return route_without_pool(message, length, buffer, result);

	switch (papply_dispatch_message(message, length, must_be_direct))
	{
		case PAPPLY_DISPATCH_QUEUED:
			return ROUTE_DONE;
		case PAPPLY_DISPATCH_HOLD:
			return ROUTE_HOLD;
		case PAPPLY_DISPATCH_PASS:
			return ROUTE_NATIVE;
		case PAPPLY_DISPATCH_DIRECT:
			break;
	}
	watch_pool();
	if (!is_idle())
		return ROUTE_HOLD;
	papply_native_begin_direct(origin);
	return route_native(message, length, buffer, result);
}

/* A keepalive of the publisher; the native loop must not see its position. */
static Route
route_keepalive(char **buffer, int *length)
{
	XLogRecPtr	remote_lsn = papply_message_get_uint64(*buffer + 1);
	bool		reply_requested = (*buffer)[17] != 0;

	papply_feedback_received(remote_lsn);
	papply_native_set_send_time(papply_message_get_uint64(*buffer + 9));
	if (!has_pool)
		return ROUTE_NATIVE;
	watch_pool();
	if (reply_requested)
		papply_feedback_flush();
	*length = papply_native_keepalive(papply_feedback_applied_lsn(is_idle()),
									  reply_requested, buffer);
	return ROUTE_NATIVE;
}

static Route
route_message(char **buffer, int *length)
{
	char	   *message = *buffer;
	int			result = 0;
	Route		route;

	if (message[0] == 'k' && *length >= 18)
		return route_keepalive(buffer, length);
	if (message[0] != 'w' || *length < HEADER_LENGTH)
		return ROUTE_NATIVE;

	papply_feedback_received(papply_message_get_uint64(message + 1));
	papply_feedback_received(papply_message_get_uint64(message + 9));
	papply_native_set_send_time(papply_message_get_uint64(message + 17));
	route = route_payload(message + HEADER_LENGTH, *length - HEADER_LENGTH,
						  buffer, &result);
	if (route == ROUTE_BEFORE)
		*length = result;
	else if (route == ROUTE_NATIVE && has_pool)
		*length = papply_native_frame(message + HEADER_LENGTH,
									  *length - HEADER_LENGTH, buffer);
	return route;
}

/*** what receive() returns when there is nothing for the native loop ***/

static int
keepalive_if_due(char **buffer)
{
	int			interval_ms = KEEPALIVE_INTERVAL_MS;
	XLogRecPtr	applied_lsn = papply_feedback_applied_lsn(is_idle());
	TimestampTz now = GetCurrentTimestamp();

	if (wal_receiver_timeout > 0)
		interval_ms = Min(interval_ms, wal_receiver_timeout / 4);
	if (applied_lsn == keepalive_lsn &&
		!TimestampDifferenceExceeds(keepalive_at, now, interval_ms))
		return 0;
	keepalive_lsn = applied_lsn;
	keepalive_at = now;

	/* a reply keeps the publisher content while its messages are not read */
	return papply_native_keepalive(applied_lsn, held != NULL, buffer);
}

/* What pg_stat_subscription shows; the native loop does not know better. */
static void
show_received(void)
{
	MyLogicalRepWorker->last_lsn = Max(MyLogicalRepWorker->last_lsn,
									   papply_feedback_received_lsn());
}

/*
 * Let the native loop go round.  A timeout shorter than its own sleep would
 * strike there, so we sleep here and make it go round at once.
 */
static int
yield(char **buffer, pgsocket *wait_fd, bool at_once)
{
	int			length = keepalive_if_due(buffer);

	if (length > 0)
		return length;
	show_received();
	yielded_at = GetCurrentTimestamp();
	if (!at_once && wal_receiver_timeout > 0 &&
		wal_receiver_timeout <= 2 * KEEPALIVE_INTERVAL_MS)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 wal_receiver_timeout / 4,
						 papply_compat_wait_event(PAPPLY_WAIT_WORK));
		at_once = true;
	}
	if (at_once)
		SetLatch(MyLatch);
	*wait_fd = quiet_socket;
	return 0;
}

/*
 * The connection has nothing more to read: flush and report what was
 * committed, and sleep until the rest is.
 */
static int
nothing_to_read(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	uint64		last = papply_queue_last_seqno();
	uint64		backlog;
	int			length;

	if (papply_dispatch_is_open() && papply_queue_open_is_published())
		papply_queue_publish_open();
	watch_pool();
	if (papply_feedback_has_unflushed() &&
		(is_idle() || papply_queue_released_seqno() >= flush_target))
	{
		papply_feedback_flush();
		flush_target = last;
	}
	papply_feedback_send(conn, papply_seam_server->walrcv_send, is_idle());

	length = keepalive_if_due(buffer);
	if (length > 0)
		return length;
	if (papply_dispatch_is_open())
		last--;
	backlog = papply_queue_backlog();
	if (backlog >= BURST_BACKLOG && !papply_dispatch_is_open())
	{
		last -= backlog / 2;
		*wait_fd = quiet_socket;
	}
	papply_commit_order_wake_receiver_at(papply_queue_released_seqno() < last ? last : 0);
	if (papply_commit_order_committed() > papply_queue_released_seqno())
		SetLatch(MyLatch);
	show_received();
	yielded_at = GetCurrentTimestamp();
	return 0;
}

/*
 * The held message waits for space, or for the pool to be drained.  Returns
 * true if it may be offered again at once.
 */
static bool
make_space(void)
{
	uint64		released = papply_queue_released_seqno();

	watch_pool();
	if (papply_queue_released_seqno() > released)
		return true;
	if (papply_dispatch_is_open() && papply_queue_last_seqno() == released + 1)
	{
		/* larger than the queue: its writer's reading makes space */
		if (papply_queue_unpublished_bytes() > 0)
			papply_queue_publish_open();
		if (papply_queue_reclaim_read())
			return true;
		papply_queue_want_space();
		return papply_queue_reclaim_read();
	}
	papply_commit_order_wake_receiver_at(released + 1);
	return papply_commit_order_committed() > released;
}

/*** receive ***/

/* A message that the native loop gets before anything is received. */
static int
next_for_native(char **buffer)
{
	PapplyRemoteRelation *rel;

	if (!has_pool)
		return 0;
	if (!papply_native_is_active() && !papply_chunk_is_open())
		begin_due_replay();
	if (papply_native_reads_queue())
		return papply_native_next(buffer);
	if (is_closing && is_idle() && (rel = papply_remote_relation_next_untold()) != NULL)
	{
		rel->native_version = rel->version;
		return papply_native_frame(rel->message, rel->length, buffer);
	}
	return 0;
}

/* Between transactions: the pool may come, go, and change. */
static void
do_housekeeping(void)
{
	if (has_pool)
		watch_pool();
	look_at_catalogs();
	adjust_pool();
	if (has_pool && is_closing && is_idle() &&
		papply_remote_relation_next_untold() == NULL)
	{
		stop_pool();
		if (papply_compat_wants_parallel_streaming())
			restart_worker("transactions are not applied in parallel any more");
	}
}

static bool
is_between_transactions(void)
{
	return !papply_native_is_active() && !papply_chunk_is_open() &&
		!(has_pool && papply_dispatch_is_open());
}

int
papply_receiver_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	initialize();
	finish_native();
	for (;;)
	{
		int			length = next_for_native(buffer);

		CHECK_FOR_INTERRUPTS();
		if (length > 0)
			return length;
		if (is_between_transactions())
		{
			do_housekeeping();
			if (has_pool && TimestampDifferenceExceeds(yielded_at, GetCurrentTimestamp(),
													   YIELD_INTERVAL_MS))
				return yield(buffer, wait_fd, true);
		}

		if (held == NULL)
		{
			length = (papply_seam_server->walrcv_receive) (conn, buffer, wait_fd);
			if (length < 0 || (length == 0 && !has_pool))
				return length;
			if (length == 0)
				return nothing_to_read(conn, buffer, wait_fd);
			held = *buffer;
			held_length = length;
		}

		*buffer = held;
		length = held_length;
		switch (route_message(buffer, &length))
		{
			case ROUTE_DONE:
				held = NULL;
				break;
			case ROUTE_NATIVE:
				held = NULL;
				return length;
			case ROUTE_BEFORE:
				return length;
			case ROUTE_HOLD:
				if (make_space())
					break;
				length = next_for_native(buffer);
				if (length > 0)
					return length;
				if (papply_native_is_active())
					break;
				papply_feedback_send(conn, papply_seam_server->walrcv_send, is_idle());
				return yield(buffer, wait_fd, false);
		}
	}
}

void
papply_receiver_send(WalReceiverConn *conn, const char *buffer, int nbytes)
{
	/* the native loop's own buffer, which it is done with */
	if (has_pool && nbytes >= HEADER_LENGTH && buffer[0] == 'r')
		papply_feedback_rewrite(unconstify(char *, buffer), is_idle());
	(papply_seam_server->walrcv_send) (conn, buffer, nbytes);
}
