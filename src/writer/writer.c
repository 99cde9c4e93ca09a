/*-------------------------------------------------------------------------
 * writer.c
 *	  A process that applies remote transactions of one subscription.
 *
 * Writers pull their work: a free writer claims the next transactions in
 * commit order.  So the oldest transaction always has a process, and a
 * transaction only waits for older ones.  Therefore there is always progress.
 *
 * A writer survives an error in one place, attempt().  It rolls back, and
 * then applies again what it had claimed, transaction by transaction, each
 * after all older ones have been committed.  The first attempt may have failed
 * only because it ran too early; the second one has the same conditions as
 * serial apply.  If that fails as well, the leader applies the transaction
 * through the core apply loop, so that PostgreSQL itself reports the error.
 * This writer waits for the fallback and then continues.  The second attempt
 * is left out if the first one has made many changes, each of which would have
 * to be rolled back once more.
 *
 * A transaction that is exclusive, because it may run user code that
 * reads, locks or counts what others change, begins only in its turn, and
 * younger transactions wait for it.  If the mark came too late, opening the
 * table throws an error, and the second attempt meets the condition.  Streamed
 * transactions that other writers apply in progress are rolled back first
 * (exclusive.c).
 *
 * A missing row is not an error for the core apply loop.  In a writer, the row
 * may not be there yet, so the writer waits for its turn in the middle of the
 * transaction and looks again.
 *
 * The state of the subscription (skip LSN, owner, and which tables are
 * synchronized), the rights on its tables and the functions and types that
 * these use must be those that serial apply would see at the beginning of the
 * transaction.  If any of that has changed
 * since a transaction began before its turn, the transaction is tried again in
 * its turn.
 *
 * If this process dies, its exit callback notifies the receiver, which exits.
 * All that is not committed is fetched again.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"

#include "account.h"
#include "apply.h"
#include "batch.h"
#include "blockers.h"
#include "claim.h"
#include "clock.h"
#include "commit_order.h"
#include "conflict.h"
#include "exclusive.h"
#include "in_order.h"
#include "in_progress.h"
#include "insert_run.h"
#include "key_wait.h"
#include "local_commit.h"
#include "pool.h"
#include "postpone.h"
#include "queue.h"
#include "read_ahead.h"
#include "relation_registry.h"
#include "reorder.h"
#include "rights.h"
#include "session.h"
#include "session_state.h"
#include "shutdown.h"
#include "source.h"
#include "target.h"
#include "wal_flush.h"

/* A writer without work reports pending statistics after this time. */
#define STATS_DELAY_MS 1000

/*
 * Time for the processes that get a lock when a deadlock is resolved to take
 * it.
 */
#define DEADLOCK_MS 100

extern PGDLLEXPORT void papply_writer_main(Datum main_arg);

/*
 * The transactions that are being applied, for the error context and counters.
 */
typedef struct ClaimedRange
{
	uint64		first;
	uint64		last;
	uint64		seqno;			/* of the transaction being read */
	bool		is_in_turn;		/* everything older is committed */
	bool		began_in_turn;	/* the same at the beginning of this range,
								 * which is one transaction */
	bool		was_current;	/* check_current() has succeeded in its turn,
								 * or need not be called */
	uint64		position;		/* of the next entry in the queue */
	TransactionId remote_xid;
	XLogRecPtr	final_lsn;
	char		message_type;	/* 0: none yet */
	bool		is_in_progress; /* its changes are in its file: in_progress.h */
} ClaimedRange;

static ClaimedRange claimed;

/* How an attempt to apply a range ends. */
typedef enum AttemptResult
{
	ATTEMPT_NONE = 0,			/* there was none */
	ATTEMPT_COMMITTED,
	ATTEMPT_COMMIT_ORDER_ABORT, /* rolled back so that others can continue */
	ATTEMPT_DEADLOCK,
	ATTEMPT_VIOLATION,			/* of a unique or exclusion constraint */
	ATTEMPT_REFUSED,			/* see refuse_transaction() */
	ATTEMPT_NOT_IN_TURN,		/* it may run code that must be exclusive */
	ATTEMPT_FAILED_LATE,		/* its data made it fail after many changes */
	ATTEMPT_FAILED				/* for another reason */
} AttemptResult;

#define ERRCODE_REFUSED MAKE_SQLSTATE('P', 'A', '0', '0', '3')

/* This process. */
typedef struct WriterProcess
{
	MemoryContext message_context;
	bool		has_unreported_stats;

	/* for detach_at_exit() */
	bool		is_started;		/* start_writer() is done */
	bool		may_leave;		/* it exits normally */
} WriterProcess;

static WriterProcess writer_process;

/*** start and end ***/

/*
 * Handle SIGTERM.  The receiver terminates its writers when it exits, which
 * must not be logged as an error of theirs.  So if the pool is closed, only
 * cancel the current work; the main loop then sees the closed gate.
 */
static void
handle_terminate(SIGNAL_ARGS)
{
	if (papply_pool != NULL && !papply_pool->is_open)
		papply_pool_cancel();
	else
		die(PAPPLY_SIGNAL_ARGS);
}

/*
 * Roll back if an older transaction requires that, even while waiting for a
 * lock.
 */
static void
handle_give_way(SIGNAL_ARGS)
{
	papply_in_progress_handle_revoke();
	papply_exclusive_handle_signal(papply_in_progress_number());
}

static void
detach_at_exit(int code, Datum arg)
{
	PapplyWriterSlot *writer_slot = papply_pool_my_writer_slot();

	writer_slot->proc = NULL;
	writer_slot->pid = 0;
	papply_awake_end();
	writer_slot->first_seqno = writer_slot->last_seqno = PAPPLY_NO_SEQNO;
	pg_atomic_write_u64(&writer_slot->applied_first, PAPPLY_NO_SEQNO);
	pg_write_barrier();
	writer_slot->state = writer_process.is_started ? PAPPLY_WRITER_NONE : PAPPLY_WRITER_FAILED;
	if (writer_process.is_started && !writer_process.may_leave && papply_pool->is_open)
	{
		writer_slot->state = PAPPLY_WRITER_EXITED;
		pg_atomic_write_u64(&papply_pool->exited_writer, papply_pool_waiter + 1);
	}
	if (papply_pool->is_open)
		papply_pool_wake(PAPPLY_WAITER_RECEIVER);
}

static void
describe_range(void *arg)
{
	if (claimed.message_type != 0)
		papply_message_add_context(papply_pool->subid, claimed.message_type, papply_apply_table(),
								   claimed.remote_xid, claimed.final_lsn);
}

/*** applying ***/

/*
 * After a deadlock, let the processes that waited for this one wake up and take
 * their locks.  An immediate retry would take the locks before them.
 */
static void
let_others_continue(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 DEADLOCK_MS, papply_compat_wait_event(PAPPLY_WAIT_TURN));
	ResetLatch(MyLatch);
}

static void
refuse_transaction(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_REFUSED),
			 errmsg("subscription has changed, or does not allow writers to continue")));
}

/*
 * Check that what the head of this file lists is unchanged.  A transaction
 * that has not begun in its turn checks this in its turn, before anything is
 * visible.  A long one checks it only once, when it becomes the oldest: serial
 * apply would not notice later changes, either.
 */
static void
check_current(void)
{
	AcceptInvalidationMessages();
	if (!papply_session_is_current() || !papply_target_range_is_current() ||
		!papply_rights_are_current())
		refuse_transaction();
}

/*
 * May a change run user code that must be exclusive?  Yes, if the transaction
 * began in its turn.  If the transaction has become the oldest but can no
 * longer be rewound, because it is larger than the queue, it may run such code
 * too; only its start time then differs from serial apply.  This exception
 * covers neither transactions that are applied in progress nor those whose
 * snapshot dates from their beginning.
 */
static bool
may_run_code(void)
{
	return claimed.began_in_turn ||
		(!IsolationUsesXactSnapshot() && !claimed.is_in_progress &&
		 claimed.first == claimed.last && !papply_queue_can_rewind(claimed.first) &&
		 papply_pool_committed() == claimed.first - 1);
}

static void
show_transaction(TransactionId remote_xid, XLogRecPtr final_lsn)
{
	papply_pool_my_writer_slot()->remote_xid = claimed.remote_xid = remote_xid;
	papply_pool_my_writer_slot()->remote_final_lsn = claimed.final_lsn = final_lsn;
}

/*
 * Get the sequence number of a streamed transaction.  Throws an error if the
 * transaction has not ended; the rest of its file may still be unread.
 */
static void
take_number(void)
{
	PapplyCommit commit;

	Assert(claimed.is_in_progress);
	if (!papply_in_progress_has_ended(&commit))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("streamed transaction is not complete")));
	claimed.first = claimed.last = papply_in_progress_number();
	papply_claim_in_progress(claimed.first);
	show_transaction(commit.xid, commit.commit_lsn);
}

/*
 * Wait for our turn in the middle of a transaction.  Throws an error if it is
 * a streamed transaction that has not ended, which has no turn yet.
 */
static void
wait_for_turn(void)
{
	papply_insert_run_flush();
	if (claimed.first == PAPPLY_SEQNO_OPEN)
		take_number();
	papply_commit_order_wait(claimed.first - 1, PAPPLY_WRITER_WAIT_TURN);
	claimed.is_in_turn = true;
}

/*
 * Wait for our turn if changes of this relation are applied in order
 * (in_order.c).
 */
static void
wait_for_order(PapplyEntry *entry)
{
	if (!papply_in_order_must_wait(papply_message_get_uint32(PapplyEntryData(entry) + 1)) ||
		claimed.is_in_turn)
		return;
	wait_for_turn();
	papply_postpone_apply_all();
}

static void
wait_for_dependency(PapplyEntry *entry)
{
	uint64		slept_us = papply_commit_order_slept_us();

	papply_insert_run_flush();
	papply_commit_order_wait(entry->dependency, PAPPLY_WRITER_WAIT_DEPENDENCY);
	papply_key_wait_note(&entry->key, papply_commit_order_slept_us() - slept_us);
}

static void
begin_change(PapplyEntry *entry)
{
	papply_local_begin();
	papply_read_ahead(claimed.position);
	if (entry->dependency < claimed.first &&
		papply_pool_committed() < entry->dependency)
		wait_for_dependency(entry);
	if (!claimed.was_current && claimed.first == claimed.last &&
		papply_pool_committed() == claimed.first - 1)
	{
		check_current();
		claimed.was_current = true;
	}
}

static void
apply_change(PapplyEntry *entry)
{
	begin_change(entry);
	if (papply_account_change(claimed.message_type) % PAPPLY_SNAPSHOT_CHANGES == 0)
	{
		AcceptInvalidationMessages();	/* rights may have changed */
		papply_local_renew_snapshot();
		papply_account_show_known();

		/*
		 * It may take hours to arrive, so check now rather than in its turn.
		 */
		if (claimed.first == PAPPLY_SEQNO_OPEN)
			check_current();
		papply_in_progress_check_slots();
	}

	/* Finding rows may be slow, and the oldest transaction may wait for us. */
	if (papply_pool_committed() + 1 < claimed.first)
		papply_blockers_look_if_due();

	MemoryContextSwitchTo(writer_process.message_context);

	/* A row that is missing may be there when everything older is committed. */
	while (!papply_apply_change(PapplyEntryData(entry), entry->length, entry->relation_version,
								claimed.is_in_turn, may_run_code()) && !claimed.is_in_turn)
	{
		wait_for_turn();
		papply_postpone_apply_all();
		papply_account_retry();
	}
	CommandCounterIncrement();
	MemoryContextReset(writer_process.message_context);
	if (papply_conflict_must_report())
	{
		wait_for_turn();
		papply_conflict_report_all();
	}
}

/*
 * Apply a postponed change of transaction seqno.  Another transaction may be
 * the one being read.
 */
static void
apply_postponed(PapplyEntry *entry, uint64 seqno)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);
	ClaimedRange now = claimed;

	Assert(seqno >= claimed.first && seqno <= claimed.seqno);
	show_transaction(txn->remote_xid, txn->final_lsn);
	claimed.message_type = PapplyEntryData(entry)[0];
	apply_change(entry);
	show_transaction(now.remote_xid, now.final_lsn);
	claimed.message_type = now.message_type;
}

/* Called in our turn, when only the commit is left. */
static void
check_turn(void)
{
	if (!claimed.was_current)
		check_current();
	papply_conflict_report_all();
}

static void
refuse_message(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("remote transaction has a message that is not applied in parallel")));
}

/* Apply a TRUNCATE, which may fire triggers. */
static void
apply_truncate(PapplyEntry *entry)
{
	papply_postpone_apply_all();
	begin_change(entry);
	if (!may_run_code())
		refuse_message();
	papply_exclusive_wait();
	papply_apply_begin_code();
	MemoryContextSwitchTo(writer_process.message_context);
	papply_truncate(PapplyEntryData(entry), entry->length);
	papply_account.truncates++;
	CommandCounterIncrement();
	MemoryContextReset(writer_process.message_context);
}

/*
 * Apply an entry.  Returns false if it ends the transaction; *commit is set
 * from it then.
 */
static bool
apply_entry(PapplyEntry *entry, PapplyCommit *commit)
{
	PapplyMessage message = papply_message_read(PapplyEntryData(entry), entry->length);

	claimed.message_type = message.kind;
	switch (message.kind)
	{
		case LOGICAL_REP_MSG_BEGIN:
		case LOGICAL_REP_MSG_BEGIN_PREPARE:
			break;
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			papply_local_begin();
			wait_for_order(entry);
			if (claimed.is_in_progress || !papply_postpone_change(entry, claimed.seqno))
				apply_change(entry);
			break;
		case LOGICAL_REP_MSG_COMMIT:
		case LOGICAL_REP_MSG_PREPARE:
		case LOGICAL_REP_MSG_COMMIT_PREPARED:
		case LOGICAL_REP_MSG_ROLLBACK_PREPARED:
			papply_message_parse_commit(&message, commit);
			return false;
		case 0:					/* a definition that the next TRUNCATE needs */
			if (entry->relation_version == 0)
				refuse_message();
			papply_local_begin();
			papply_target_use_version(entry->relation_version);
			break;
		case LOGICAL_REP_MSG_TRUNCATE:
			apply_truncate(entry);
			break;
		default:
			refuse_message();
	}
	CHECK_FOR_INTERRUPTS();
	return true;
}

/* Apply all changes of a transaction, and set *commit from its COMMIT. */
static void
apply_transaction(uint64 seqno, PapplyCommit *commit)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);
	uint64		position = txn->start_position;

	claimed.seqno = seqno;
	show_transaction(txn->remote_xid, txn->final_lsn);
	for (;;)
	{
		PapplyEntry *entry = papply_source_next(&position);

		claimed.position = position;
		if (!apply_entry(entry, commit))
			return;
		if (!papply_queue_is_complete(txn))
			papply_queue_consumed(position);
	}
}

/* Apply a streamed transaction, which ends while it is being applied. */
static void
apply_streamed_transaction(PapplyCommit *commit)
{
	PapplyEntry *entry;

	show_transaction(papply_in_progress_mine()->xid, InvalidXLogRecPtr);
	papply_local_begin();
	papply_source_begin_in_progress(check_current);
	while ((entry = papply_source_next_in_progress(commit)) != NULL)
		(void) apply_entry(entry, commit);
	take_number();
	claimed.message_type = LOGICAL_REP_MSG_STREAM_COMMIT;
}

static void
apply_all(PapplyCommit *commit)
{
	if (claimed.is_in_progress)
		apply_streamed_transaction(commit);
	else
		for (uint64 seqno = claimed.first; seqno <= claimed.last; seqno++)
		{
			apply_transaction(seqno, commit);
			papply_account_applied(seqno);
		}
	papply_postpone_apply_all();
	papply_insert_run_flush();
}

static void
apply_range(uint64 first, PapplyWriterState state)
{
	PapplyCommit commit;
	uint64		slept_us = papply_commit_order_slept_us();
	int64		begin = papply_clock_now();
	double		us;

	papply_exclusive_begin_range(first);
	papply_exclusive_check(papply_in_progress_number());
	papply_account_begin(first, claimed.last, begin);
	papply_pool_set_state(state);
	if (!papply_session_suits_writers())
		refuse_transaction();
	if (claimed.first != claimed.last)
	{
		papply_local_begin();
		papply_reorder_check_batch();
	}
	papply_read_ahead_begin(claimed.first, claimed.last, !claimed.is_in_turn && !claimed.is_in_progress);
	apply_all(&commit);
	us = papply_clock_now() - begin - (papply_commit_order_slept_us() - slept_us);
	papply_statistics_count(PAPPLY_COUNT_APPLY_US, us);
	if (!claimed.is_in_progress)	/* its time is that of its arrival */
		papply_batch_note_time(us / (claimed.last - claimed.first + 1));
	papply_read_ahead_end();
	papply_awake_set_ahead(papply_read_ahead_is_on());
	papply_local_commit(claimed.first, claimed.last, &commit);
	papply_account_commit();
	pgstat_report_stat(false);
	writer_process.has_unreported_stats = true;
}

static AttemptResult
classify(const ErrorData *error)
{
	switch (error->sqlerrcode)
	{
		case PAPPLY_ERRCODE_COMMIT_ORDER_ABORT:
			return ATTEMPT_COMMIT_ORDER_ABORT;
		case ERRCODE_T_R_DEADLOCK_DETECTED:
			return ATTEMPT_DEADLOCK;
		case ERRCODE_UNIQUE_VIOLATION:
		case ERRCODE_EXCLUSION_VIOLATION:
			return ATTEMPT_VIOLATION;
		case ERRCODE_REFUSED:
			return ATTEMPT_REFUSED;
		case PAPPLY_ERRCODE_NOT_IN_TURN:
			return ATTEMPT_NOT_IN_TURN;
		default:
			return papply_exclusive_has_canceled() ? ATTEMPT_COMMIT_ORDER_ABORT : ATTEMPT_FAILED;
	}
}

/*
 * Would it take long to apply once more what its data, or a function of a user, has
 * made fail?  Other errors may be our own, such as that of a streamed transaction
 * that has to wait for its end.
 */
static bool
is_failed_late(int sqlerrcode)
{
	int			category = ERRCODE_TO_CATEGORY(sqlerrcode);

	return (category == ERRCODE_TO_CATEGORY(ERRCODE_DATA_EXCEPTION) ||
			category == ERRCODE_TO_CATEGORY(ERRCODE_INTEGRITY_CONSTRAINT_VIOLATION) ||
			category == ERRCODE_TO_CATEGORY(ERRCODE_PLPGSQL_ERROR)) &&
		claimed.first == claimed.last && papply_account.rows > PAPPLY_MANY_CHANGES;
}

/* Roll back after an error, which is reported at DEBUG1 only. */
static AttemptResult
recover_from_error(void)
{
	ErrorData  *error;
	AttemptResult result;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(writer_process.message_context);
	error = CopyErrorData();
	FlushErrorState();
	result = classify(error);
	if (result == ATTEMPT_VIOLATION && !claimed.is_in_turn && !claimed.is_in_progress)
		papply_in_order_note_violation(papply_apply_relation());
	if (is_failed_late(error->sqlerrcode))
		result = ATTEMPT_FAILED_LATE;
	papply_local_abort();
	papply_account_error(result == ATTEMPT_COMMIT_ORDER_ABORT);
	ereport(DEBUG1,
			(errmsg_internal("remote transaction %u is rolled back: %s",
							 claimed.remote_xid, error->message)));
	MemoryContextReset(writer_process.message_context);
	pgstat_report_stat(false);
	RESUME_INTERRUPTS();
	return result;
}

/* Call a function with seqno and state; roll back if it throws an error. */
static AttemptResult
attempt(void (*function) (uint64, PapplyWriterState), uint64 seqno, PapplyWriterState state)
{
	MemoryContext old_context = CurrentMemoryContext;
	volatile AttemptResult result = ATTEMPT_COMMITTED;

	PG_TRY();
	{
		function(seqno, state);
	}
	PG_CATCH();
	{
		result = recover_from_error();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	return result;
}

/*
 * Apply and commit transactions as one local transaction.  An error raised
 * after the commit became visible (for example, when logging a message is
 * interrupted) must not cause a retry, because the transactions are already
 * applied.
 */
static AttemptResult
try_range(uint64 first, uint64 last, bool is_in_turn)
{
	AttemptResult result;

	Assert(first <= last && (first == last || !is_in_turn));
	memset(&claimed, 0, sizeof(claimed));
	claimed.first = first;
	claimed.last = last;
	claimed.is_in_turn = is_in_turn;
	claimed.began_in_turn = first == last && papply_pool_committed() == first - 1;
	claimed.was_current = claimed.began_in_turn;
	claimed.is_in_progress = first == PAPPLY_SEQNO_OPEN;
	papply_target_begin_range(first != last);
	papply_rights_begin_range();
	papply_apply_begin_range();
	papply_conflict_forget_all();
	papply_postpone_begin_range(first, apply_postponed);
	result = attempt(apply_range, first, PAPPLY_WRITER_APPLYING);
	papply_exclusive_end_range();
	claimed.message_type = 0;
	if (papply_pool_committed() >= claimed.last)
		result = ATTEMPT_COMMITTED;
	else if (!claimed.is_in_progress)
		(void) papply_queue_rewind(last);	/* only the last one may be
											 * incomplete */
	papply_account_end_tables(result == ATTEMPT_COMMITTED);
	papply_key_wait_end_transaction();
	return result;
}

/* Wait outside of a transaction.  Returns false if the pool was closed. */
static bool
wait_until_committed(uint64 seqno, PapplyWriterState state)
{
	while (papply_pool_committed() < seqno && papply_pool->is_open)
		(void) attempt(papply_commit_order_wait, seqno, state);
	return papply_pool->is_open;
}

/*
 * Leave a transaction, which is rolled back, to the leader in its turn.
 * Nothing younger is applied meanwhile, because younger
 * transactions may be why it failed, and because it may run user code.
 */
static void
leave_to_leader(uint64 seqno, AttemptResult result)
{
	PapplyCounter reason = result == ATTEMPT_REFUSED ?
	PAPPLY_COUNT_FALLBACK_SUBSCRIPTION : PAPPLY_COUNT_FALLBACK_FAILURE;

	if (papply_session_settings_exist())
		reason = PAPPLY_COUNT_FALLBACK_TABLE;	/* as the receiver counts it */
	papply_pool_my_writer_slot()->counters.fallbacks++;
	if (result == ATTEMPT_DEADLOCK)
		let_others_continue();
	papply_queue_leave_to_leader(seqno, PAPPLY_BY_LEADER_EXCLUSIVE, reason);
	papply_pool_wake(PAPPLY_WAITER_RECEIVER);
}

/*
 * Apply a transaction under the conditions of serial apply.  If that fails,
 * leave it to the core apply loop and wait for the fallback.  result is that
 * of the first attempt, if there was one.
 */
static void
apply_in_turn(uint64 seqno, AttemptResult result)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);
	bool		is_retry = result != ATTEMPT_NONE;

	show_transaction(txn->remote_xid, txn->final_lsn);
	if (!wait_until_committed(seqno - 1, PAPPLY_WRITER_WAIT_TURN))
		return;
	if (is_retry)
		papply_account_retry();
	if (papply_queue_is_exclusive(seqno) || result == ATTEMPT_NOT_IN_TURN)
		SetCurrentStatementStartTimestamp();	/* user code sees the time of
												 * its turn */
	AcceptInvalidationMessages();
	if (result != ATTEMPT_FAILED_LATE && papply_session_load_subscription() &&
		(!is_retry || papply_queue_can_rewind(seqno)))
		result = try_range(seqno, seqno, true);
	if (result == ATTEMPT_COMMITTED || !papply_pool->is_open)
		return;
	leave_to_leader(seqno, result);
	(void) wait_until_committed(seqno, PAPPLY_WRITER_WAIT_LEADER);
}

/*
 * Apply what this writer has claimed, together if possible, otherwise one by
 * one.
 */
static void
apply_claimed(uint64 first, uint64 last)
{
	bool		is_exclusive = papply_queue_is_exclusive(first) || papply_exclusive_forbids(first);
	AttemptResult result = is_exclusive ? ATTEMPT_NONE : try_range(first, last, false);

	if (result == ATTEMPT_COMMITTED)
		return;
	if (result == ATTEMPT_DEADLOCK)
		let_others_continue();
	for (uint64 seqno = first; seqno <= last && papply_pool->is_open; seqno++)
		apply_in_turn(seqno, result);
}

/*
 * Apply a streamed transaction, which ends while it is being applied.  If it
 * fails after its end, leave it to the core apply loop.  Waiting here for its
 * turn could mean waiting for a transaction that no other writer is free to
 * apply.
 */
static void
apply_in_progress(void)
{
	AttemptResult result;

	papply_account_claim();
	papply_claim_in_progress(PAPPLY_SEQNO_OPEN);
	SetCurrentStatementStartTimestamp();
	result = try_range(PAPPLY_SEQNO_OPEN, PAPPLY_SEQNO_OPEN, false);
	if (result != ATTEMPT_COMMITTED && !papply_in_progress_give_up(result == ATTEMPT_FAILED_LATE) &&
		papply_pool->is_open)
		leave_to_leader(papply_in_progress_number(), result);
	papply_source_end_in_progress();
	papply_in_progress_leave();
}

/*** main loop ***/

/* Sleep until there is work.  Reports pending statistics if there is none. */
static void
wait_for_work(void)
{
	bool		may_be_stuck = papply_queue_is_in_flight() || papply_in_progress_count() > 0;
	long		timeout_ms = writer_process.has_unreported_stats || may_be_stuck ? STATS_DELAY_MS : -1;

	papply_account_show_table(NULL);
	if (may_be_stuck && !papply_awake_has_substitute())
		timeout_ms = PAPPLY_BLOCKERS_INTERVAL_MS;
	if (!papply_claim_wait_for_work(timeout_ms))
	{
		pgstat_report_stat(true);
		writer_process.has_unreported_stats = false;
		papply_blockers_look_if_due();
	}
	AcceptInvalidationMessages();
}

static void
writer_loop(void)
{
	uint64		first;
	uint64		last;

	while (papply_pool->is_open && !papply_pool_is_retired() && papply_session_load_subscription())
	{
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			papply_account_show_name();
		}
		papply_wal_flush_if_spare();
		if (papply_in_progress_take())
		{
			apply_in_progress();
			continue;
		}
		papply_batch_leave_to_others();
		if (!papply_claim(papply_batch_max(), &first, &last))
		{
			wait_for_work();
			continue;
		}
		papply_account_claim();
		apply_claimed(first, last);
	}
}

/* Do what may wait or fail, after the exit callback has been registered. */
static void
start_writer(void)
{
	papply_queue_attach();
	papply_registry_attach();
	papply_session_connect();
	if (!papply_session_load_subscription())
		proc_exit(0);			/* dropped meanwhile */
	papply_target_init();
	papply_rights_init();
	papply_local_init(check_turn);
	writer_process.message_context = AllocSetContextCreate(TopMemoryContext, "parallel_apply message",
														   ALLOCSET_DEFAULT_SIZES);
}

void
papply_writer_main(Datum main_arg)
{
	ErrorContextCallback error_context;
	uint32		generation;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, handle_terminate);
	pqsignal(SIGUSR2, handle_give_way);
	papply_shutdown_init_writer();
	BackgroundWorkerUnblockSignals();

	memcpy(&generation, MyBgworkerEntry->bgw_extra, sizeof(generation));
	if (!papply_pool_attach_writer(main_arg, generation))
		proc_exit(0);
	before_shmem_exit(detach_at_exit, (Datum) 0);
	papply_statistics_attach();
	papply_blockers_begin_checks();

	error_context.callback = describe_range;
	error_context.arg = NULL;
	error_context.previous = error_context_stack;
	error_context_stack = &error_context;
	PG_TRY();
	{
		start_writer();
		writer_process.is_started = true;
		papply_awake_begin();
		papply_account_show_table(NULL);
		writer_loop();
	}
	PG_CATCH();
	{
		/* interrupted between transactions; see handle_terminate() */
		if (papply_pool->is_open)
			PG_RE_THROW();
		FlushErrorState();
	}
	PG_END_TRY();
	error_context_stack = error_context.previous;
	writer_process.may_leave = true;
	proc_exit(0);
}
