/*-------------------------------------------------------------------------
 * status.c
 *	  Show the state of a subscription.
 *
 * Runs in the receiver, with and without a pool.  statistics.c keeps what is
 * shown.
 *
 * Positions are updated whenever the receiver stops reading, and the data for
 * rates once per second.  With a pool, the positions are those of feedback.c.
 * Without one, they are those that the core apply loop reports to the
 * publisher, and the ends of its transactions.
 *
 * The lag of the subscription, as a time, is the age on the publisher of the
 * oldest transaction that is not committed.  The change of that age over the
 * last seconds tells when the subscription will have caught up, if the
 * publisher stays as busy.
 *
 * If all that was received is committed, what the publisher has not sent yet
 * counts.  It is not known here, but younger than the newest transaction that
 * was sent.  So that one counts, if it was old when it was sent, by the clock of
 * the publisher alone.  A walsender that has sent all sends a keepalive and waits
 * for new WAL (WalSndWaitForWal() in walsender.c).  Until there has been one, or
 * nothing has come for some time, the publisher is taken to have more.  A new
 * connection begins with the lag that was shown before: the walsender may have
 * to decode for a long time before it sends anything.
 *
 * Waits of writers in the lock manager are estimated, because a writer does
 * not learn when it is woken there.  A writer that is found waiting at the
 * check, once per second, is assumed to have waited since the previous check.
 * On average that is right, however short the waits are.  leader_waits.c counts
 * those of the apply worker.
 *
 * A hook sees errors of the core apply loop when PostgreSQL logs them.  Such
 * an error ends the process.  The view shows the error until the next process
 * has overcome it: until the transaction that failed is committed, or there is
 * a connection again.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "clock.h"
#include "connection.h"
#include "dispatch.h"
#include "feedback.h"
#include "leader_count.h"
#include "leader_waits.h"
#include "pool.h"
#include "queue.h"
#include "slots.h"
#include "status.h"
#include "tap.h"

/* A transaction is old if it was committed this long before it was sent. */
#define OLD_US (1 * USECS_PER_SEC)

/* A publisher that sends nothing for this long is taken to have nothing. */
#define SILENCE_MS 10000

/* Without a pool, this many transactions are shown together while there are more. */
#define SHOWN_TRANSACTIONS 64

/* Commit time on the publisher of a transaction held by a pause; 0: none. */
static TimestampTz held_commit_time = 0;

/* What the publisher may have to send. */
typedef struct Unsent
{
	TimestampTz since;			/* it was committed after this; 0: there is
								 * nothing */
	int64		noted_at;		/* or 0: nothing was received yet */
} Unsent;

static Unsent unsent;

/* Transactions, without a pool, since the status was last shown. */
static uint32 unshown = 0;

/*** what the core apply loop does ***/

/* The transaction that failed is committed or skipped. */
static void
forget_failure(void)
{
	PapplyFailure *failure = &papply_statistics_progress->failure;

	failure->final_lsn = InvalidXLogRecPtr;
	if (failure->kind == PAPPLY_FAILURE_TRANSACTION)
		failure->kind = PAPPLY_FAILURE_NONE;
}

static void
note_begin(const PapplyTap *tap)
{
	PapplyProgress *progress = papply_statistics_progress;

	progress->leader.is_applying = true;
	progress->leader.remote_xid = tap->begin.xid;
	progress->leader.final_lsn = tap->begin.final_lsn;
	progress->leader.commit_time = tap->begin.commit_time;
	progress->leader.changes = 0;
	if (papply_pool != NULL)	/* see show_queue(), core_loop.c */
		return;
	progress->oldest_commit_time = tap->begin.commit_time;
	papply_leader_waits_begin();
}

static void
note_end(const PapplyTap *tap)
{
	PapplyProgress *progress = papply_statistics_progress;

	progress->leader.is_applying = false;
	if (tap->begin.final_lsn == progress->failure.final_lsn)
		forget_failure();		/* at once: others may follow for a long time */
	if (papply_pool != NULL)	/* see show_queue(), core_loop.c */
		return;
	papply_leader_waits_end();
	progress->oldest_commit_time = 0;
	progress->committed_lsn = Max(progress->committed_lsn, tap->end_lsn);
	if (++unshown >= SHOWN_TRANSACTIONS)
		papply_status_update(false, true);
}

static void
note_failure(int sqlerrcode)
{
	PapplyProgress *progress = papply_statistics_progress;
	PapplyFailure failure = {PAPPLY_FAILURE_OTHER, progress->failure.final_lsn, 0};

	if (papply_tap_is_applying())
	{
		failure.kind = PAPPLY_FAILURE_TRANSACTION;
		failure.final_lsn = papply_tap.begin.final_lsn;
	}
	else if (ERRCODE_TO_CATEGORY(sqlerrcode) == ERRCODE_CONNECTION_EXCEPTION)
		failure.kind = PAPPLY_FAILURE_CONNECTION;
	failure.behind_since = papply_statistics_behind_since(progress, false);
	progress->failure = failure;
}

static void
note_error(const PapplyTap *tap)
{
	if (tap->error->elevel >= ERROR)
		papply_leader_waits_look();
	if (tap->error->elevel == ERROR)
	{
		papply_statistics_note_error(tap->error->message);
		note_failure(tap->error->sqlerrcode);
	}
}

static void
detach_at_exit(int code, Datum arg)
{
	papply_statistics_detach();
	papply_slots_detach_receiver();
}

void
papply_status_attach(void)
{
	papply_slots_attach_receiver(MySubscription->oid);
	papply_statistics_attach();
	before_shmem_exit(detach_at_exit, (Datum) 0);
	papply_leader_count_init();
	papply_tap_observe(PAPPLY_TAP_BEGIN, note_begin);
	papply_tap_observe(PAPPLY_TAP_END, note_end);
	papply_tap_observe(PAPPLY_TAP_ERROR, note_error);
	papply_tap_attach();
}

void
papply_status_init(void)
{
	PapplyProgress *progress = papply_statistics_progress;
	PapplyFailure failure = progress->failure;
	TimestampTz current_at = papply_statistics_behind_since(progress, false);

	failure.kind = XLogRecPtrIsInvalid(failure.final_lsn) ?
		PAPPLY_FAILURE_NONE : PAPPLY_FAILURE_TRANSACTION;
	memset(progress, 0, sizeof(*progress));
	progress->failure = failure;
	progress->current_at = progress->oldest_commit_time = current_at;
	unsent.since = current_at;
	unsent.noted_at = 0;
	papply_connection_last.has_sent_all = false;
	papply_status_set(PAPPLY_APPLY_NATIVE, PAPPLY_REASON_STARTING);
}

void
papply_status_set(PapplyApplyState state, PapplyApplyReason reason)
{
	papply_statistics_progress->reason = reason;
	pg_write_barrier();			/* pairs with the lock in
								 * papply_statistics_get() */
	papply_statistics_progress->state = state;
}

/*** once a second ***/

static void
count_lock_waits(uint64 elapsed_us)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PGPROC	   *proc = papply_pool->writers[i].proc;

		if (proc == NULL || !papply_compat_proc_waits_for_lock(proc))
			continue;
		papply_statistics_count(PAPPLY_COUNT_WAITS_LOCK, 1);
		papply_statistics_count(PAPPLY_COUNT_LOCK_US, elapsed_us);
		papply_pool->writers[i].lock_wait_us += elapsed_us;
	}
}

/* Add a sample, if one is due.  The clock may have been set. */
static void
take_sample(bool has_pool)
{
	PapplyProgress *progress = papply_statistics_progress;
	uint64		n = progress->samples_taken;
	int64		before = progress->samples[(n + PAPPLY_SAMPLES - 1) % PAPPLY_SAMPLES].taken_at;
	PapplySample *next = &progress->samples[n % PAPPLY_SAMPLES];
	int64		now = papply_clock_recent();
	TimestampTz oldest = progress->oldest_commit_time;

	if (n > 0 && !papply_clock_has_passed(before, now, PAPPLY_SAMPLE_MS))
		return;
	if (n > 0 && has_pool)
		count_lock_waits(Min(now - before, 2 * PAPPLY_SAMPLE_MS * INT64CONST(1000)));

	next->taken_at = now;
	next->transactions = papply_statistics_transactions();
	next->oldest_commit_time = oldest != 0 ? oldest : GetCurrentTimestamp();
	if (oldest == 0)
		progress->current_at = next->oldest_commit_time;
	pg_write_barrier();			/* pairs with the lock in
								 * papply_statistics_get() */
	progress->samples_taken = n + 1;
}

/*** what is shown ***/

/* Has the publisher something to send, all of it committed after unsent.since? */
static bool
has_unsent(void)
{
	return unsent.since != 0 && !papply_connection_last.has_sent_all &&
		(unsent.noted_at == 0 ||
		 !papply_clock_has_passed(unsent.noted_at, papply_clock_recent(), SILENCE_MS));
}

/* There is none in the queue. */
static void
show_oldest_native(void)
{
	PapplyProgress *progress = papply_statistics_progress;

	if (progress->leader.is_applying)
		progress->oldest_commit_time = progress->leader.commit_time;
	else if (held_commit_time != 0)
		progress->oldest_commit_time = held_commit_time;
	else
		progress->oldest_commit_time = has_unsent() ? unsent.since : 0;
}

static void
show_queue(bool is_idle)
{
	PapplyProgress *progress = papply_statistics_progress;
	uint64		complete = papply_queue_last_seqno() - (papply_dispatch_is_open() ? 1 : 0);
	uint64		oldest = papply_pool_committed() + 1;
	XLogRecPtr	committed_lsn = papply_feedback_applied_lsn(is_idle);

	progress->received_lsn = papply_feedback_received_lsn();
	progress->committed_lsn = committed_lsn;
	progress->flushed_lsn = papply_feedback_flushed_lsn(is_idle);
	progress->dispatched_lsn = complete == PAPPLY_NO_SEQNO ? committed_lsn :
		Max(committed_lsn, papply_queue_transaction(complete)->remote_end_lsn);
	progress->queue_bytes = papply_queue_used_bytes();
	progress->queue_transactions = papply_queue_last_seqno() - papply_queue_released_seqno();
	if (oldest <= papply_queue_last_seqno())
		progress->oldest_commit_time = papply_queue_transaction(oldest)->commit_time;
	else
		show_oldest_native();
}

static void
show_native(void)
{
	PapplyProgress *progress = papply_statistics_progress;

	if (unshown > 0)
		papply_status_received(progress->leader.commit_time);

	/* it asks for more when it has applied what it got */
	progress->received_lsn = papply_feedback_received_lsn();
	progress->committed_lsn = Max(progress->committed_lsn, progress->received_lsn);
	progress->dispatched_lsn = progress->committed_lsn;
	progress->queue_bytes = 0;
	progress->queue_transactions = 0;
	show_oldest_native();
}

/* Forget a failure if its transaction has been committed or skipped. */
static void
forget_if_committed(void)
{
	PapplyProgress *progress = papply_statistics_progress;

	if (progress->committed_lsn > progress->failure.final_lsn)
		forget_failure();
}

void
papply_status_update(bool has_pool, bool is_idle)
{
	if (has_pool)
		show_queue(is_idle);
	else
		show_native();
	unshown = 0;
	forget_if_committed();
	take_sample(has_pool);
}

void
papply_status_received(TimestampTz commit_time)
{
	bool		is_old = papply_connection_last.send_time - commit_time > OLD_US;

	unsent.since = is_old ? commit_time : 0;
	if (is_old)
		unsent.noted_at = papply_clock_recent();
}

void
papply_status_native_feedback(const char *message, int length)
{
	PapplyProgress *progress = papply_statistics_progress;
	XLogRecPtr	flushed_lsn;
	XLogRecPtr	applied_lsn;

	if (!papply_feedback_parse(message, length, &flushed_lsn, &applied_lsn))
		return;
	progress->flushed_lsn = flushed_lsn;
	progress->committed_lsn = Max(progress->committed_lsn, applied_lsn);
}

void
papply_status_hold(TimestampTz commit_time)
{
	if (commit_time == held_commit_time)
		return;
	held_commit_time = commit_time;
	papply_statistics_progress->oldest_commit_time = commit_time;
}
