/*-------------------------------------------------------------------------
 * local_commit.c
 *	  The local transaction that applies remote ones, and its commit in turn.
 *
 * Runs in a writer.
 *
 * The turn is waited for in the callback XACT_EVENT_PRE_COMMIT, when deferred
 * triggers have fired, and passed on in XACT_EVENT_COMMIT, when the
 * transaction is visible: what is serial is the commit record and little else.
 * The gate is held in between, so that nothing is committed once the receiver
 * has closed it, and interrupts are off.
 *
 * The commit record carries the replication origin with the remote end
 * position of the last transaction; so does every change, for those who filter
 * by origin.  Up to PostgreSQL 15 the session of the origin is taken in the
 * turn and passed on with it; from 16 on it is shared with the receiver.  An
 * abort must not advance the origin: its position is cleared before.
 *
 * If the process dies before the commit record is written, the transaction is
 * fetched again by the next receiver; if after, the origin has it.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "commit_order.h"
#include "local_commit.h"
#include "target.h"

/* What is being committed. */
typedef struct PendingCommit
{
	bool		is_set;
	bool		has_origin;		/* of the session, up to PostgreSQL 15 */
	uint64		first;
	uint64		last;
	PapplyCommit commit;
} PendingCommit;

static PendingCommit pending;
static PapplyOriginId origin = PAPPLY_NO_ORIGIN;

static void
enter_turn(void)
{
	papply_commit_order_enter(pending.first);
	papply_compat_origin_take(origin);
	pending.has_origin = true;
	PAPPLY_SESSION_ORIGIN_LSN = pending.commit.end_lsn;
	PAPPLY_SESSION_ORIGIN_TIMESTAMP = pending.commit.commit_time;
}

static void
leave_origin(void)
{
	if (pending.has_origin)
		papply_compat_origin_pass_on();
	pending.has_origin = false;
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;
	PAPPLY_SESSION_ORIGIN_TIMESTAMP = 0;
}

static void
transaction_callback(XactEvent event, void *arg)
{
	if (!pending.is_set)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			enter_turn();
			break;
		case XACT_EVENT_COMMIT:
			leave_origin();
			papply_commit_order_advance(pending.first, pending.last, XactLastCommitEnd);
			papply_commit_order_leave();
			pending.is_set = false;
			break;
		case XACT_EVENT_ABORT:
			leave_origin();
			pending.is_set = false;
			break;
		default:
			break;
	}
}

void
papply_local_init(PapplyOriginId origin_id, int receiver_pid)
{
	origin = origin_id;
	papply_compat_origin_share(origin, receiver_pid);
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	RegisterXactCallback(transaction_callback, NULL);
}

void
papply_local_begin(void)
{
	if (IsTransactionState())
		return;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	PAPPLY_SESSION_ORIGIN = origin;
}

void
papply_local_renew_snapshot(void)
{
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

void
papply_local_commit(uint64 first, uint64 last, const PapplyCommit *commit)
{
	if (!IsTransactionState())
	{
		papply_commit_order_enter(first);
		papply_commit_order_advance(first, last, InvalidXLogRecPtr);
		papply_commit_order_leave();
		return;
	}

	papply_target_close_all();
	PopActiveSnapshot();
	pending.is_set = true;
	pending.first = first;
	pending.last = last;
	pending.commit = *commit;
	CommitTransactionCommand();
}

void
papply_local_abort(void)
{
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;
	papply_target_forget_all();
	AbortOutOfAnyTransaction();
	pending.is_set = false;
}
