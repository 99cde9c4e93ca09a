/*-------------------------------------------------------------------------
 * receiver.c
 *	  Supply the core apply loop with its next message.
 *
 * Runs in the leader apply worker of a subscription, called through the walrcv hook.
 * The stages are: receive a message, route it (route.c), put it into the queue
 * (dispatch.c) or pass it to the core apply loop (core_loop.c), report
 * positions (report.c).
 *
 * The core apply loop (LogicalRepApplyLoop) calls receive() until it returns 0, then does
 * its housekeeping, and sleeps on its latch and the socket that receive() returned.  So
 * receive() need not wait; it does so only for short times, as sleep.c plans, and in
 * pause_reading().  The core apply loop does not see what is put into the queue.  It gets
 * a keepalive from time to time, which resets its timers.  The position in that keepalive
 * is the one up to which everything is committed, never the received one: the core apply
 * loop synchronizes tables by the position that it has received, which it takes to be
 * applied.  Before its housekeeping, the core apply loop gets the committed position,
 * if that has moved.  It makes a worker that synchronizes a table catch up to
 * that position.  With an older one, changes of the table in between would be
 * lost, because they were skipped.
 *
 * When the queue is full or has to be drained, the message is held.  The core apply loop
 * then sleeps on a socket that is never readable and on its latch, which
 * writers set: that is the back-pressure.  The connection stays alive, because
 * the core apply loop runs at least once per second.
 *
 * lifecycle.c decides when there is a pool, and handles the end of this process.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <sched.h>
#include <sys/socket.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "replication/walreceiver.h"
#include "storage/latch.h"

#include "blockers.h"
#include "claim.h"
#include "clock.h"
#include "commit_order.h"
#include "connection.h"
#include "core_loop.h"
#include "dispatch.h"
#include "due_flush.h"
#include "exclusive.h"
#include "feedback.h"
#include "leader_count.h"
#include "leader_policy.h"
#include "leader_waits.h"
#include "lifecycle.h"
#include "message.h"
#include "native_watch.h"
#include "owner.h"
#include "pace.h"
#include "pause_point.h"
#include "pool.h"
#include "queue.h"
#include "receiver.h"
#include "remote_relation.h"
#include "report.h"
#include "route.h"
#include "session_state.h"
#include "sleep.h"
#include "spool.h"
#include "status.h"
#include "tap.h"
#include "test_hooks.h"
#include "tls.h"
#include "wal_flush.h"

/* The traffic is slow if the receiver has slept for this time before a message. */
#define SLOW_TRAFFIC_MS 20

/* The publisher is ahead if a transaction is older than this when it is sent. */
#define AHEAD_MS 100

/*
 * In the middle of a large transaction, the publisher is taken to be ahead by at least
 * this: sessions wait only for its end, so delays as short as this do not matter.
 */
#define WITHIN_MS 20

/*
 * How long to wait, without sleeping, for the rest of a small transaction: longer than a
 * walsender needs for a message, and about as long as it takes to sleep.
 */
#define REST_US 20

/* Writers that roll back set the latch; see serve_core_loop(). */
#define YOUNGER_NAP_MS 10

/*
 * The steps of receive() return what it must return, or this if it does not return yet.
 */
#define NOT_YET (-2)

/* The connection to the publisher, and what to wait on. */
typedef struct Stream
{
	bool		is_publisher_known; /* learn_of_publisher() has succeeded */
	int64		lead_us;		/* age of the newest transaction when the
								 * publisher sent it; 0: it was young */
	int64		dry_at;			/* since when it is empty; 0: not known to be */
	pgsocket	quiet_socket;	/* never readable */
	WaitEventSet *events;		/* of the connection; NULL: not yet needed */
	uint64		direct;			/* number of transactions that the core apply
								 * loop got directly */
} Stream;

/* The publisher may be ahead, as long as that is not known. */
static Stream stream = {.lead_us = 1};

/* A message that could not be routed; still in the connection's buffer. */
typedef struct HeldMessage
{
	char	   *buffer;
	int			length;
} HeldMessage;

static HeldMessage held = {NULL, 0};

/* The core apply loop's turn to do its housekeeping. */
static PapplyRound core_round = {.state = PAPPLY_ROUND_QUIET};

typedef struct Keepalive
{
	int64		at;
	XLogRecPtr	lsn;
	bool		has_received;	/* since then */
} Keepalive;

static Keepalive keepalive;

/* The core apply loop has done its housekeeping for this fallback. */
static uint64 housekeeping_seqno = PAPPLY_NO_SEQNO;

/* What has to be done next for a fallback; serve_core_loop() does it. */
typedef enum FallbackStep
{
	FALLBACK_NONE,				/* there is no fallback */
	FALLBACK_CONTINUE,			/* with its next message */
	FALLBACK_ENTER,				/* exclusive.c: younger ones roll back first */
	FALLBACK_HOUSEKEEPING,		/* of the core apply loop */
	FALLBACK_BEGIN
} FallbackStep;

/*
 * Note what the core apply loop's transaction may have left in the session.
 * Comparing all settings takes too long for a leader transaction that has run no
 * user code.
 */
static void
note_session(void)
{
	papply_session_locks_note();
	if (!papply_core_loop_may_have_run_code())
		return;
	papply_session_settings_note();
	papply_session_sequences_forget();
}

/* Before the core apply loop commits, while it holds the locks that show what it has used. */
static void
note_sequences(XactEvent event, void *arg)
{
	if ((event == XACT_EVENT_PRE_COMMIT || event == XACT_EVENT_PRE_PREPARE) &&
		papply_lifecycle_has_pool() && papply_core_loop_is_active() &&
		papply_core_loop_may_have_run_code())
		papply_session_sequences_note();
}

static void
initialize(void)
{
	int			sockets[2];
	XLogRecPtr	applied_lsn;

	papply_first_settings_note();
	papply_status_init();
	papply_remote_relation_init();
	papply_lifecycle_init();
	RegisterXactCallback(note_sequences, NULL);

	/*
	 * This position is reported as flushed, also by PostgreSQL's own apply.
	 * The previous apply worker may have committed asynchronously, so flush
	 * its commits first: the publisher does not send again what is confirmed.
	 */
	applied_lsn = replorigin_session_get_progress(true);
	papply_feedback_received(applied_lsn);
	papply_pause_point_init(applied_lsn);

	/* never readable: the other end stays open, and no process writes to it */
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0)
		ereport(ERROR,
				(errcode_for_socket_access(),
				 errmsg("could not create socket: %m")));
	stream.quiet_socket = sockets[0];
}

/*
 * Ask the publisher once what it supports: by conn, the connection of the stream, or by
 * another one if conn is NULL, because the stream was started without a pool.
 */
static void
learn_of_publisher(WalReceiverConn *conn)
{
	PapplyPublisher publisher;

	if (stream.is_publisher_known)
		return;
	publisher = papply_publisher_ask(conn);
	stream.is_publisher_known = true;
	papply_due_flush_set(publisher.flushes);
	papply_report_set_timeout(publisher.timeout_ms);
}

bool
papply_receiver_prepare_stream(WalReceiverConn *conn)
{
	initialize();
	if (!papply_lifecycle_wants_pool())
		return false;
	learn_of_publisher(conn);

	/*
	 * The previous receiver may have ended before this server's synchronous
	 * standbys had confirmed what it had committed.
	 */
	papply_feedback_sync_earlier();
	return true;
}

/* Account for what the core apply loop has committed, if it has got a whole transaction. */
static void
finish_native(void)
{
	XLogRecPtr	remote_end_lsn;
	XLogRecPtr	local_end_lsn;
	uint64		seqno = papply_core_loop_seqno();
	bool		was_leader_transaction = papply_core_loop_has_leader_transaction();

	if (!papply_core_loop_is_ended())
		return;

	/*
	 * The core apply loop asks for the next message only after the commit,
	 * but nothing says that it must.
	 */
	if (IsTransactionState())
		elog(ERROR, "next message was requested while a transaction is open");
	papply_core_loop_finish(&remote_end_lsn, &local_end_lsn);
	if (!papply_lifecycle_has_pool())
		return;
	note_session();
	if (remote_end_lsn == InvalidXLogRecPtr)
		remote_end_lsn = papply_feedback_received_lsn();

	if (seqno == PAPPLY_NO_SEQNO)
	{
		stream.direct++;
		papply_commit_order_want_flush(local_end_lsn);
		pg_memory_barrier();	/* pairs with that of a sleeping flusher */
		papply_feedback_committed(remote_end_lsn, local_end_lsn);
	}
	else
	{
		if (papply_dispatch_is_open() && seqno == papply_queue_last_seqno())
			papply_dispatch_end_direct(remote_end_lsn);
		papply_commit_order_advance(seqno, seqno, local_end_lsn);
	}
	if (was_leader_transaction)
	{
		papply_leader_policy_end();
		papply_report_committed();
	}
	else if (papply_wal_flush_is_wanted())
		(void) papply_wal_flush_wake_writer();
	papply_lifecycle_applied_by_leader(remote_end_lsn);
}

/*
 * Must a fallback be applied exclusively?  This is so if a writer gave it up, or if it
 * may run user code.  A writer runs some of that code while younger ones are applied, and
 * tries again after an error; an error of the core apply loop ends this process.  User code
 * was not known when the transaction was queued if a trigger may have been created since,
 * or if its end has not arrived.
 */
static bool
must_be_exclusive(uint64 seqno)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);

	return papply_queue_applier(seqno) == PAPPLY_BY_LEADER_EXCLUSIVE ||
		papply_queue_is_separate(seqno) || !papply_queue_is_complete(txn) ||
		txn->local_changes != papply_remote_relation_local_changes();
}

/*
 * Return what has to be done next for a fallback, and set *seqno to its number if there
 * is one: the transaction that the core apply loop gets from the queue, or the oldest
 * one.  Has no effects.
 *
 * Younger ones are looked for at each change, because the core apply loop may have
 * waited for a long time since the last one, and a writer may have begun to apply a
 * streamed transaction after a leader transaction has begun.
 *
 * The core apply loop reads the subscription in its housekeeping, which may say that
 * this very transaction is to be skipped.  Leader transactions are frequent, so for
 * these it does so only if the subscription has been changed.
 */
static FallbackStep
next_step_of_fallback(uint64 *seqno)
{
	bool		has_begun = papply_core_loop_is_active();

	if (!papply_lifecycle_has_pool() || (has_begun && !papply_core_loop_reads_queue()))
		return FALLBACK_NONE;
	*seqno = has_begun ? papply_core_loop_seqno() : papply_pool_committed() + 1;
	if (!has_begun && (*seqno > papply_queue_last_seqno() ||
					   !papply_queue_is_by_leader(papply_queue_transaction(*seqno))))
		return FALLBACK_NONE;
	if (!papply_exclusive_has_entered(*seqno) && must_be_exclusive(*seqno))
		return FALLBACK_ENTER;
	if (has_begun)
		return FALLBACK_CONTINUE;
	if (*seqno == housekeeping_seqno ||
		(papply_queue_applier(*seqno) == PAPPLY_BY_LEADER_POLICY && !papply_lifecycle_needs_housekeeping()))
		return FALLBACK_BEGIN;
	return FALLBACK_HOUSEKEEPING;
}

/* Is there something to do before a fallback begins or continues? */
static bool
is_fallback_due(void)
{
	uint64		seqno;
	FallbackStep step = next_step_of_fallback(&seqno);

	return step > FALLBACK_CONTINUE &&
		(step != FALLBACK_ENTER || !papply_exclusive_waits(seqno));
}

/* Note how old the newest transaction was when the publisher sent what was read last. */
static void
measure_behind(void)
{
	TimestampTz commit_time = papply_dispatch_take_commit_time();

	if (commit_time == 0)
		return;
	papply_status_received(commit_time);
	stream.lead_us = papply_connection_last.send_time - commit_time;
	if (stream.lead_us <= AHEAD_MS * INT64CONST(1000))
		stream.lead_us = 0;
}

/* It was young when it arrived.  Update the views before it may have to wait. */
static void
begin_leader_transaction(void)
{
	measure_behind();
	stream.lead_us = 0;
	papply_status_update(true, false);
	papply_leader_policy_begin();
}

/*
 * Begin the fallback that is due.  If the transaction is larger than the queue, its first
 * messages may be gone.  Then it has to be fetched again: this process ends, and the next
 * receiver passes the transaction to the core apply loop directly.
 */
static void
begin_due_fallback(uint64 seqno)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);

	Assert(papply_queue_is_by_leader(txn) && !papply_core_loop_is_active());
	if (pg_atomic_read_u32(&txn->hold) == PAPPLY_TXN_STREAMED)
		papply_lifecycle_refetch(txn->final_lsn);
	if (papply_dispatch_is_open() && seqno == papply_queue_last_seqno())
		papply_queue_publish_open();
	papply_awake_wake_for_work();
	if (papply_queue_applier(seqno) == PAPPLY_BY_LEADER_POLICY)
		begin_leader_transaction();
	else
		(void) papply_awake_wake_spare();	/* to look for blockers meanwhile */
	papply_core_loop_begin_queued(seqno, papply_lifecycle_origin());
}

/* Sleep for less time than the core apply loop would. */
static void
sleep_for(long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout_ms, papply_compat_wait_event(PAPPLY_WAIT_WORK));
}

/*** what receive() returns when there is nothing for the core apply loop ***/

static int
keepalive_if_due(char **buffer)
{
	XLogRecPtr	applied_lsn = papply_feedback_applied_lsn(papply_lifecycle_is_idle());
	int64		now = papply_clock_now();

	/*
	 * a publisher that is silent while it is read should time out, but not
	 * one whose messages are left unread or that waits for a reply
	 */
	bool		is_alive = keepalive.has_received || held.buffer != NULL || !papply_report_may_answer();

	if (applied_lsn == keepalive.lsn &&
		!(is_alive && papply_clock_has_passed(keepalive.at, now, papply_report_silence_ms())))
		return 0;
	keepalive.has_received = false;
	keepalive.lsn = applied_lsn;
	keepalive.at = now;

	/* replies keep the publisher from timing out while a message is held */
	return papply_tap_keepalive(applied_lsn, held.buffer != NULL, buffer);
}

/*
 * Prepare for the housekeeping of the core apply loop.  It does not know what
 * is in the queue, so set the position that pg_stat_subscription shows as
 * received.
 */
static void
end_round(void)
{
	bool		may_sleep;
	uint64		seqno = PAPPLY_NO_SEQNO;
	FallbackStep step;

	may_sleep = core_round.state < PAPPLY_ROUND_ACTIVE ||
		!papply_route_is_between_transactions() || !papply_lifecycle_tables_are_ready();
	MyLogicalRepWorker->last_lsn = Max(MyLogicalRepWorker->last_lsn,
									   papply_feedback_received_lsn());
	core_round.state = may_sleep ? PAPPLY_ROUND_ASLEEP : PAPPLY_ROUND_QUIET;
	core_round.since = 0;
	core_round.first_after_sleep = 0;
	if (!papply_core_loop_is_active() && !papply_spool_native_is_open())
		papply_lifecycle_begin_housekeeping();
	step = next_step_of_fallback(&seqno);
	housekeeping_seqno = step == FALLBACK_HOUSEKEEPING || step == FALLBACK_BEGIN ?
		seqno : PAPPLY_NO_SEQNO;
}

/* Check what is to be checked from time to time, when nothing else can be done. */
static void
watch(void)
{
	papply_lifecycle_watch();
	if (papply_queue_is_in_flight())
		papply_blockers_look_if_due();
}

/* Return how many transactions have been received: queued or direct ones. */
static uint64
number_received(void)
{
	return papply_queue_last_seqno() + stream.direct;
}

/*
 * Sleep for at most timeout_ms on the latch and the connection.  If that has called the
 * core apply loop (is_at_rest: no writer has a reason to set the latch), note this.
 */
static void
sleep_here(pgsocket socket, long timeout_ms, bool is_at_rest)
{
	WaitEvent	event;
	int64		begin;
	bool		is_timeout;

	if (stream.events == NULL)
	{
		stream.events = papply_compat_create_wait_event_set(3);
		AddWaitEventToSet(stream.events, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
		AddWaitEventToSet(stream.events, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
		AddWaitEventToSet(stream.events, WL_SOCKET_READABLE, socket, NULL, NULL);
	}
	papply_test_count_wait();
	begin = papply_clock_now();
	is_timeout = WaitEventSetWait(stream.events, timeout_ms, &event, 1,
								  papply_compat_wait_event(PAPPLY_WAIT_WORK)) == 0;
	papply_test_count_sleep(core_round.state < PAPPLY_ROUND_ACTIVE, is_timeout);
	papply_leader_policy_slept();
	if (is_timeout)
		return;
	if (core_round.state < PAPPLY_ROUND_ACTIVE)
		core_round.since = papply_clock_now();
	core_round.state = PAPPLY_ROUND_ACTIVE;
	if (event.events & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		if (is_at_rest)
			core_round.state = PAPPLY_ROUND_CALLED;
	}
	else if (papply_clock_has_passed(begin, papply_clock_now(), SLOW_TRAFFIC_MS))
		core_round.first_after_sleep = number_received() + 1;
}

/*
 * Sleep as planned.  Return NOT_YET to look again for something to do.  Otherwise return
 * 0, or the length of a keepalive, for a round of the core apply loop.
 */
static int
sleep_as_planned(const PapplySleepFacts *facts, char **buffer, pgsocket *wait_fd)
{
	PapplySleepPlan plan = papply_sleep_plan(facts, papply_clock_recent());
	int			length;

	if (facts->is_reading)
	{
		papply_commit_order_wake_receiver_at(plan.wake_at);
		if (papply_pool_committed() > facts->released)
			return NOT_YET;
		if (plan.here_ms > 0)
		{
			sleep_here(*wait_fd, plan.here_ms, facts->is_at_rest);
			if (core_round.state != PAPPLY_ROUND_CALLED)
				return NOT_YET;
		}
	}
	length = keepalive_if_due(buffer);
	if (length > 0)
		return length;
	end_round();
	if (!facts->is_reading)
	{
		*wait_fd = stream.quiet_socket;
		if (plan.here_ms > 0)
			sleep_for(plan.here_ms);
	}
	if (!plan.core_loop_may_sleep ||
		(facts->is_reading && core_round.state != PAPPLY_ROUND_ASLEEP))
		SetLatch(MyLatch);
	papply_test_wait_for(*wait_fd);
	return 0;
}

/*
 * Let the core apply loop do its housekeeping, without reading anything: return 0, or
 * the length of a keepalive.  patience_ms is that of PapplySleepFacts.
 */
static int
yield(char **buffer, pgsocket *wait_fd, long patience_ms)
{
	PapplySleepFacts facts = {.patience_ms = patience_ms};

	facts.silence_ms = papply_report_silence_ms();

	/* the keepalive must cover what the core apply loop has just committed */
	if (papply_lifecycle_has_pool())
	{
		papply_lifecycle_release();
		watch();
	}
	papply_status_update(papply_lifecycle_has_pool(), papply_lifecycle_is_idle());
	return sleep_as_planned(&facts, buffer, wait_fd);
}

/*
 * Leave the connection unread for a while if the publisher is ahead; return false if it
 * is not.  The pause ends early if the core apply loop has to apply a transaction.
 */
static bool
pause_reading(WalReceiverConn *conn, pgsocket socket)
{
	int64		ahead_us = stream.lead_us;
	int64		pause_us;
	int64		end;

	if (papply_spool_is_open() || (papply_dispatch_is_open() && papply_queue_open_is_published()))
		ahead_us = Max(ahead_us, WITHIN_MS * INT64CONST(1000));
	pause_us = papply_pace_pause_us(socket, ahead_us);
	if (pause_us == 0)
		return false;
	papply_report_if_due(conn);
	papply_commit_order_wake_receiver_at(0);
	end = papply_clock_now() + pause_us;
	while (pause_us >= 1000 && !is_fallback_due())
	{
		sleep_for(pause_us / 1000);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		pause_us = end - papply_clock_now();
	}
	if (pause_us > 0 && pause_us < 1000)
		pg_usleep(pause_us);	/* WaitLatch() has a resolution of 1 ms */
	papply_pace_end_pause();
	return true;
}

/*
 * Handle an empty connection: have applied what was received, report what was received,
 * committed and flushed, and sleep until there is more.
 */
static int
nothing_to_read(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	bool		is_open = papply_dispatch_is_open();
	uint64		released = papply_queue_released_seqno();
	PapplySleepFacts facts = {.is_reading = true};
	long		report_ms;

	measure_behind();
	if (is_open && papply_queue_open_is_published())
		papply_queue_publish_open();
	papply_awake_wake_for_work();
	papply_lifecycle_release();
	facts.patience_ms = papply_lifecycle_adapt(stream.lead_us > 0);
	papply_status_update(true, papply_lifecycle_is_idle());
	if (pause_reading(conn, *wait_fd))
	{
		watch();
		return NOT_YET;
	}
	facts.is_slow = core_round.first_after_sleep > 0 &&
		core_round.first_after_sleep == number_received() && papply_route_is_between_transactions();
	report_ms = papply_report_now(conn, facts.is_slow);
	if (facts.patience_ms < 0 || (report_ms >= 0 && report_ms < facts.patience_ms))
		facts.patience_ms = report_ms;
	if (papply_queue_released_seqno() > released)
		core_round.state = Max(core_round.state, PAPPLY_ROUND_ACTIVE);
	watch();

	facts.round = core_round;
	facts.silence_ms = papply_test_waits_in_core_loop() ? 0 : papply_report_silence_ms();
	facts.released = papply_queue_released_seqno();
	facts.in_flight = papply_queue_last_seqno() - facts.released - (is_open ? 1 : 0);
	facts.is_at_rest = facts.in_flight == 0 && !papply_due_flush_is_expected();
	return sleep_as_planned(&facts, buffer, wait_fd);
}

/*** receive ***/

/* Return the length of a message that the core apply loop gets before any other, or 0. */
static int
next_for_native(char **buffer)
{
	PapplyRemoteRelation *rel;

	if (papply_core_loop_reads_queue())
	{
		int			length = papply_route_reply(false, buffer);

		return length > 0 ? length : papply_core_loop_next(buffer);
	}
	if (papply_lifecycle_is_drained() && (rel = papply_remote_relation_next_unannounced()) != NULL)
	{
		rel->native_version = rel->version;
		return papply_tap_frame(&rel->message, rel->schema, buffer);
	}
	return 0;
}

/*
 * Wait briefly for the rest of a small transaction that a session may wait for.  The
 * walsender is about to send the next message, and sleeping would take longer than that.
 * Return false when REST_US have passed.
 */
static bool
rest_comes(void)
{
	int64		now;

	if (!papply_dispatch_may_be_for_leader() && !papply_core_loop_has_leader_transaction())
		return false;
	now = papply_clock_now();
	if (stream.dry_at == 0)
		stream.dry_at = now;
	if (now - stream.dry_at > REST_US)
		return false;
	(void) sched_yield();		/* the walsender may need this processor */
	(void) papply_leader_policy_idle();
	return true;
}

/*
 * Must the connection be read again, instead of reporting that it is empty?  A test
 * ensures with this that nothing is reported within a transaction for that reason: see
 * src/test/selftest_wakes.c.
 */
static bool
must_read_on(void)
{
#ifdef PAPPLY_SELFTEST
	return papply_selftest_read_on &&
		(papply_dispatch_is_open() || papply_core_loop_has_leader_transaction());
#else
	return false;
#endif
}

/* Let the core apply loop do what it must do before anything else is received. */
static int
serve_core_loop(char **buffer, pgsocket *wait_fd)
{
	uint64		seqno = PAPPLY_NO_SEQNO;
	int			length;

	switch (next_step_of_fallback(&seqno))
	{
		case FALLBACK_ENTER:
			if (papply_exclusive_enter(seqno))
				return serve_core_loop(buffer, wait_fd);
			if (papply_core_loop_is_active())
				return yield(buffer, wait_fd, YOUNGER_NAP_MS);
			break;
		case FALLBACK_HOUSEKEEPING:
			return yield(buffer, wait_fd, 0);
		case FALLBACK_BEGIN:
			begin_due_fallback(seqno);
			break;
		case FALLBACK_NONE:
		case FALLBACK_CONTINUE:
			break;
	}
	length = next_for_native(buffer);
	return length > 0 ? length : NOT_YET;
}

/* Between transactions, start or stop the pool if the settings have changed. */
static int
adjust_pool(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	bool		had_pool = papply_lifecycle_has_pool();

	papply_lifecycle_adjust();

	/* the core apply loop synchronizes tables by this position */
	if (had_pool && !papply_lifecycle_has_pool())
	{
		housekeeping_seqno = PAPPLY_NO_SEQNO;
		papply_tls_end();
		return papply_tap_keepalive(papply_feedback_applied_lsn(true), false, buffer);
	}
	if (!had_pool && papply_lifecycle_has_pool())
	{
		learn_of_publisher(NULL);
		papply_tls_begin(conn);
	}
	/* messages may go straight to the core apply loop from now on */
	if (held.buffer == NULL && papply_spool_is_empty() && papply_tls_is_native() &&
		papply_lifecycle_has_chosen_native())
	{
		papply_native_watch_begin();
		return papply_receiver_receive(conn, buffer, wait_fd);
	}
	/* it must look at settings, subscription and tables */
	if (papply_lifecycle_has_pool() &&
		(ConfigReloadPending ||
		 (core_round.state >= PAPPLY_ROUND_ACTIVE &&
		  papply_clock_has_passed(core_round.since, papply_clock_recent(), PAPPLY_ROUND_MS))))
	{
		papply_awake_wake_for_work();
		(void) papply_lifecycle_adapt(stream.lead_us > 0);
		papply_report_if_due(conn);
		return yield(buffer, wait_fd, 0);
	}
	return NOT_YET;
}

/*
 * Receive a message, from the connection or from the spool, and hold it until
 * it is delivered.  If there is none, sleep or let the core apply loop sleep.
 */
static int
fetch_message(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	int			length = papply_spool_is_reading() ? papply_spool_next(buffer) :
	(papply_connection_functions->walrcv_receive) (conn, buffer, wait_fd);

	if (length > 0)
	{
		PapplyReceived received = papply_message_open(*buffer, length);

		stream.dry_at = 0;
		held.buffer = *buffer;
		held.length = length;
		if (!papply_spool_is_reading() && received.type == 'w')
			papply_pace_note(length, received.send_time);
		keepalive.has_received = true;
		core_round.state = Max(core_round.state, PAPPLY_ROUND_ACTIVE);
		return NOT_YET;
	}
	if (length < 0)
		return length;
	if (papply_tls_has_more() || papply_tls_check())
		return NOT_YET;
	if (!papply_lifecycle_has_pool())
	{
		papply_status_update(false, true);
		return 0;
	}
	if (rest_comes() || must_read_on())
		return NOT_YET;
	length = nothing_to_read(conn, buffer, wait_fd);
	if (length == NOT_YET)
		(void) papply_leader_policy_idle();
	return length;
}

/* Route the held message.  It stays held if there is no space for it. */
static int
deliver_message(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	int			length = held.length;
	bool		is_active = papply_core_loop_is_active();

	Assert(held.buffer != NULL);
	*buffer = held.buffer;
	switch (papply_route_message(buffer, &length))
	{
		case PAPPLY_TAKEN:
			held.buffer = NULL;
			return NOT_YET;
		case PAPPLY_TO_CORE_LOOP:
			held.buffer = NULL;
			if (!is_active && papply_core_loop_has_leader_transaction())
				begin_leader_transaction();
			return length;
		case PAPPLY_OTHER_FIRST:
			return length;
		case PAPPLY_HELD:
		case PAPPLY_UNDECIDED:	/* not here */
			break;
	}
	if (!papply_lifecycle_has_pool())
		return yield(buffer, wait_fd, -1);
	if (papply_route_make_space() || is_fallback_due())
		return NOT_YET;
	papply_report_if_due(conn);
	return yield(buffer, wait_fd, papply_lifecycle_adapt(stream.lead_us > 0));
}

static pg_noinline int
receive_and_route(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	int			length;

	if (papply_leader_count_must_look)
		papply_leader_count_look();
	papply_tap_next();
	papply_leader_waits_look();
	finish_native();
	if (core_round.since == 0)
	{
		core_round.since = papply_leader_policy_idle();
		if (core_round.state == PAPPLY_ROUND_ASLEEP)
			core_round.first_after_sleep = number_received() + 1;
	}
	do
	{
		CHECK_FOR_INTERRUPTS();
		length = serve_core_loop(buffer, wait_fd);
		if (length == NOT_YET && papply_route_is_between_transactions())
			length = adjust_pool(conn, buffer, wait_fd);
		if (length == NOT_YET && held.buffer == NULL)
			length = fetch_message(conn, buffer, wait_fd);
		if (length == NOT_YET && held.buffer != NULL)
			length = deliver_message(conn, buffer, wait_fd);
	} while (length == NOT_YET);
	return length;
}

int
papply_receiver_receive(WalReceiverConn *conn, char **buffer, pgsocket *wait_fd)
{
	int			length = papply_native_watch_receive(conn, buffer, wait_fd);

	return length != PAPPLY_NOT_WATCHING ? length : receive_and_route(conn, buffer, wait_fd);
}

void
papply_receiver_send(WalReceiverConn *conn, const char *buffer, int nbytes)
{
	if (!papply_lifecycle_has_pool())
		papply_status_native_feedback(buffer, nbytes);
	else
	{
		buffer = papply_feedback_rewrite(buffer, nbytes, papply_lifecycle_is_idle());
		if (!papply_report_may_answer())
			return;
	}
	(papply_connection_functions->walrcv_send) (conn, buffer, nbytes);
}
