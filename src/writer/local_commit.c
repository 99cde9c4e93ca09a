/*-------------------------------------------------------------------------
 * local_commit.c
 *	  The local transaction that applies remote ones, and its commit in turn.
 *
 * Runs in a writer.
 *
 * The writer waits for its turn in the callback XACT_EVENT_PRE_COMMIT, after
 * deferred triggers have fired, and passes the turn on in XACT_EVENT_COMMIT,
 * when the transaction is visible.  So only the commit record and little else
 * is serialized.  If the commit is interrupted in between, for example while
 * it waits for the lock of NOTIFY, the transaction is rolled back as after any
 * other error.  This is not possible for PREPARE, COMMIT PREPARED and ROLLBACK
 * PREPARED: their record is written before the local transaction ends, so
 * interrupts are held off until then.
 *
 * A serializable transaction passes the turn on after it has ended.  In
 * XACT_EVENT_COMMIT it still has its predicate locks, which could make the
 * next transaction of the core apply loop fail and end the apply worker.  A
 * transaction that has run user code does the same, because in
 * XACT_EVENT_COMMIT it is not known yet which
 * session_replication_role the code leaves behind, which the next transaction
 * has to know.
 *
 * The commit record carries the replication origin with the remote end
 * position of the last transaction.  Every change carries the origin as well,
 * for filtering by origin.  Up to PostgreSQL 15 the session of the origin is
 * taken in the turn and passed on with it; from 16 on it is shared with the
 * receiver.  An abort must not advance the origin, so its position is cleared
 * first.
 *
 * If user code has run, the writer waits for its turn before all callbacks.
 * Callbacks of other extensions may be called before ours, and postgres_fdw
 * commits there what triggers have done on other servers.  If our transaction
 * failed after that, those commits would remain.
 *
 * PREPARE works the same way, but passes the turn on when all is done.  In the
 * callback, the prepared transaction still belongs to this process, and a
 * writer that executes its COMMIT PREPARED would find it busy.  COMMIT
 * PREPARED and ROLLBACK PREPARED write their record in the middle of a local
 * transaction that does nothing else, so the turn is taken before; the
 * server's function flushes the record.  Prepared transactions have the names
 * that the core apply loop gives them, because either may have to finish what
 * the other has prepared.
 *
 * If the process dies before the commit record is written, the next receiver
 * fetches the transaction again.  If it dies later, the origin has advanced
 * past it.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/twophase.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/worker_internal.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/snapmgr.h"

#include "apply.h"
#include "commit_order.h"
#include "local_commit.h"
#include "origin.h"
#include "pool.h"
#include "replication_role.h"
#include "session_state.h"
#include "target.h"

/* The transactions that are being committed. */
typedef struct PendingCommit
{
	bool		is_in_turn;		/* its turn has come, it has passed the gate,
								 * and the session of the origin is taken
								 * (PostgreSQL 15) */
	uint64		first;			/* PAPPLY_NO_SEQNO: there are none */
	uint64		last;
	PapplyCommit commit;
} PendingCommit;

static PendingCommit pending;

static void (*check_turn) (void);

static void
wait_for_turn(uint64 first)
{
	papply_commit_order_wait(first - 1, PAPPLY_WRITER_WAIT_TURN);
	if (papply_apply_has_user_code())
		papply_session_state_check_end();
	check_turn();
}

/*
 * Wait for the turn and pass the gate.  The checks may read catalogs, so they
 * come before the gate.
 */
static void
enter_turn(void)
{
	Assert(pending.first != PAPPLY_NO_SEQNO);
	if (pending.is_in_turn)
		return;
	wait_for_turn(pending.first);
	papply_commit_order_enter(pending.first);
	if (pending.commit.type != LOGICAL_REP_MSG_COMMIT)
		HOLD_INTERRUPTS();		/* an error resumes them */
	papply_origin_take();
	pending.is_in_turn = true;
	PAPPLY_SESSION_ORIGIN_LSN = pending.commit.end_lsn;
	PAPPLY_SESSION_ORIGIN_TIMESTAMP = pending.commit.commit_time;
}

/* Clear the origin of the session, so that an abort does not advance it. */
static void
forget_origin(void)
{
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;
	PAPPLY_SESSION_ORIGIN_TIMESTAMP = 0;
}

static void
leave_origin(void)
{
	if (pending.is_in_turn)
		papply_origin_pass_on();
	forget_origin();
}

static void
leave_turn(XLogRecPtr local_end_lsn)
{
	Assert(pending.is_in_turn);
	leave_origin();
	papply_commit_order_advance(pending.first, pending.last, local_end_lsn);
	if (pending.commit.type != LOGICAL_REP_MSG_COMMIT)
		RESUME_INTERRUPTS();
	memset(&pending, 0, sizeof(pending));
}

static void
transaction_callback(XactEvent event, void *arg)
{
	if (pending.first == PAPPLY_NO_SEQNO)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			enter_turn();
			break;
		case XACT_EVENT_COMMIT:
			Assert(!TransactionIdIsValid(MyProc->xid)); /* it is visible */
			/* others keep their turn: see the head of this file */
			if (!IsolationIsSerializable() && !papply_apply_has_run_code())
				leave_turn(XactLastCommitEnd);
			break;
		case XACT_EVENT_ABORT:
			leave_origin();
			memset(&pending, 0, sizeof(pending));
			break;
		default:
			break;
	}
}

/* Runs before the server's exit callback aborts the transaction. */
static void
forget_origin_at_exit(int code, Datum arg)
{
	forget_origin();
}

void
papply_local_init(void (*check) (void))
{
	check_turn = check;
	if (PAPPLY_ORIGIN_IS_SHARED)
		papply_compat_origin_setup(papply_pool->origin.id, papply_pool->receiver_pid);
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	RegisterXactCallback(transaction_callback, NULL);
	before_shmem_exit(forget_origin_at_exit, (Datum) 0);
}

void
papply_local_begin(void)
{
	if (IsTransactionState())
		return;
	Assert(PAPPLY_SESSION_ORIGIN == PAPPLY_NO_ORIGIN);
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	PAPPLY_SESSION_ORIGIN = papply_pool->origin.id;
}

void
papply_local_release_snapshot(void)
{
	PopActiveSnapshot();
	InvalidateCatalogSnapshot();
}

void
papply_local_take_snapshot(void)
{
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
papply_local_renew_snapshot(void)
{
	PopActiveSnapshot();
	papply_local_take_snapshot();
}

/* Return the name that the core apply loop gives to a prepared transaction. */
static char *
prepared_name(TransactionId remote_xid)
{
	return psprintf("pg_gid_%u_%u", MySubscription->oid, remote_xid);
}

/*
 * Prepare the transaction even if it is empty, because COMMIT PREPARED fails
 * otherwise.
 */
static void
prepare_transaction(void)
{
	BeginTransactionBlock();
	CommitTransactionCommand();
	PrepareTransactionBlock(prepared_name(pending.commit.xid));
}

static void
finish_prepared(void)
{
	const PapplyCommit *commit = &pending.commit;
	bool		is_commit = commit->type == LOGICAL_REP_MSG_COMMIT_PREPARED;
	char	   *name = prepared_name(commit->xid);

	enter_turn();

	/* A transaction that is rolled back may never have been prepared here. */
	if (is_commit || LookupGXact(name, commit->prepare_end_lsn, commit->prepare_time))
		FinishPreparedTransaction(name, is_commit);
}

void
papply_local_commit(uint64 first, uint64 last, const PapplyCommit *commit)
{
	Assert(first <= last && last != PAPPLY_SEQNO_OPEN);
	Assert(pending.first == PAPPLY_NO_SEQNO);
	if (!IsTransactionState() && commit->type == LOGICAL_REP_MSG_COMMIT)
	{
		wait_for_turn(first);
		papply_commit_order_enter(first);
		papply_commit_order_advance(first, last, InvalidXLogRecPtr);
		return;
	}

	papply_local_begin();
	papply_target_close_all();
	PopActiveSnapshot();
	pending.first = first;
	pending.last = last;
	pending.commit = *commit;
	if (papply_apply_has_run_code())
		wait_for_turn(first);
	if (commit->type == LOGICAL_REP_MSG_PREPARE)
		prepare_transaction();
	else if (commit->type != LOGICAL_REP_MSG_COMMIT)
		finish_prepared();
	CommitTransactionCommand();
	papply_role_pass_on();

	/*
	 * PREPARE has flushed its record.  Standbys are waited for up to that
	 * position.
	 */
	if (pending.is_in_turn)
		leave_turn(commit->type == LOGICAL_REP_MSG_PREPARE ?
				   GetFlushRecPtr(NULL) : XactLastCommitEnd);
	papply_session_sequences_forget();
}

void
papply_local_abort(void)
{
	forget_origin();
	papply_target_forget_all();
	AbortOutOfAnyTransaction();
	papply_session_state_abort();
	memset(&pending, 0, sizeof(pending));
}
