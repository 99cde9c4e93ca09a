/*-------------------------------------------------------------------------
 * replay.c
 *	  Apply a skipped and stored transaction.
 *
 * Runs in a background worker, which a session starts that calls replay()
 * (call_replay.c) and waits for.
 *
 * The stored messages are applied by the functions of a writer, under the
 * conditions of the oldest transaction of a pool: everything older is
 * committed, and nothing is applied alongside.  So this process has a pool of
 * its own, which has no receiver and no queue.  Local sessions and the apply
 * worker of the subscription are concurrent transactions like any other.
 *
 * Why a process of its own?  The session of the caller may belong to another
 * user, and triggers would run there with its settings and temporary tables.
 * Here they run as in an apply worker, in a session of the subscription's
 * owner.  What they leave in that session ends with the process.
 *
 * The rows that store the transaction are removed in the local transaction
 * that applies it, so it is applied exactly once, whatever crashes when.
 *
 * The commit record carries the replication origin of the subscription and
 * the time of the remote commit, but no position.  The progress of the origin
 * must not change, neither here nor when the record is recovered.  The server
 * requires a session of an origin for such a commit, and adds the position to
 * the progress of that session.  The origin of the subscription belongs to
 * the apply worker, which may be running.  So an origin is created for the
 * replay, whose session this process takes, and dropped at the end.  If the
 * server crashes in between, the next apply worker of the subscription drops
 * that origin, or the next replay uses it.
 *
 * A table may have been copied from the publisher since the transaction was skipped:
 * it was missing and has been added to the subscription, or it was copied again.  The copy
 * contains the transaction, so the changes of that table are left out, as the apply
 * worker leaves out those of transactions that a copy contains.  For the apply worker,
 * pg_subscription_rel has the position of the copy, which is replaced when the table
 * becomes READY, by the position of the apply worker.  This may be that at the end of
 * the skipped transaction, though the copy is older, but not beyond.
 *
 * Locking: a lock of its own, held until the process ends, makes sure that one
 * transaction of a subscription is replayed at a time.  The subscription itself
 * is not locked meanwhile, because a replay may wait for a long time, and users must be
 * able to pause or disable the subscription, skip a transaction and so on.  (The
 * server's ALTER SUBSCRIPTION takes the same lock as DROP SUBSCRIPTION.)  Just
 * before the commit, when nothing else remains to be waited for, the
 * subscription is locked against DROP, and it must still exist and have the same
 * owner.  If the server crashes during a replay whose subscription was dropped,
 * the origin of the replay remains.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_subscription_rel.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/pg_list.h"
#include "port/pg_bswap.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "../writer/account.h"
#include "../writer/apply.h"
#include "../writer/conflict.h"
#include "../writer/insert_run.h"
#include "../writer/local_commit.h"
#include "../writer/postpone.h"
#include "../writer/rights.h"
#include "../writer/session.h"
#include "../writer/target.h"
#include "../writer/target_cache.h"
#include "message.h"
#include "pool.h"
#include "relation_registry.h"
#include "stored.h"

/*
 * This process holds a lock on the subscription with this sub-ID, which the
 * server does not lock.
 */
#define REPLAY_LOCK 1

extern PGDLLEXPORT void papply_replay_main(Datum main_arg);

/* The transaction that is being applied. */
typedef struct Remote
{
	TransactionId xid;
	XLogRecPtr	final_lsn;
	XLogRecPtr	end_lsn;
	TimestampTz commit_time;
	char		message_type;	/* 0: none yet */
	uint64		changes;
	List	   *left_out;		/* remote OIDs of tables whose copies contain
								 * it */
} Remote;

/* This process. */
typedef struct ReplayProcess
{
	MemoryContext message_context;
	bool		has_origin;		/* the origin of the replay exists */
	bool		has_origin_session; /* and its session is that of this process */
	volatile sig_atomic_t is_terminated;	/* SIGTERM has arrived */
} ReplayProcess;

static PapplyReplay *replay = NULL;
static Remote remote;
static ReplayProcess replay_process;

/*** messages ***/

static void
note_begin(const PapplyMessage *message)
{
	PapplyBegin begin_message;

	papply_message_parse_begin(message, &begin_message);
	papply_pool_my_writer_slot()->remote_xid = remote.xid = begin_message.xid;
	papply_pool_my_writer_slot()->remote_final_lsn = remote.final_lsn = begin_message.final_lsn;
}

static void
note_end(const PapplyMessage *message)
{
	PapplyCommit commit;

	papply_message_parse_commit(message, &commit);
	remote.commit_time = commit.commit_time;
	if (commit.type == LOGICAL_REP_MSG_PREPARE)
		remote.commit_time = papply_stored_commit_time(replay->id);
}

/*
 * Does the table have a copy that contains the transaction?  It is not copied again until
 * the end of the local transaction, since that needs a stronger lock.
 */
static bool
is_in_copy(LogicalRepRelation *rel)
{
	Oid			relid = RangeVarGetRelid(makeRangeVar(rel->nspname, rel->relname, -1),
										 RowExclusiveLock, true);
	XLogRecPtr	ready_lsn;		/* invalid if it was never copied */

	return OidIsValid(relid) &&
		GetSubscriptionRelState(replay->subid, relid, &ready_lsn) == SUBREL_STATE_READY &&
		ready_lsn > remote.end_lsn;
}

/* Leave out the changes of a table, and let the session report that. */
static void
leave_out(const LogicalRepRelation *rel)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopTransactionContext);

	if (!list_member_oid(remote.left_out, rel->remoteid))
	{
		strlcat(replay->left_out, remote.left_out == NIL ? "" : ", ", sizeof(replay->left_out));
		strlcat(replay->left_out, quote_qualified_identifier(rel->nspname, rel->relname),
				sizeof(replay->left_out));
		remote.left_out = lappend_oid(remote.left_out, rel->remoteid);
	}
	MemoryContextSwitchTo(old_context);
}

static void
use_relation(char *data, int length)
{
	LogicalRepRelation *rel = papply_message_read_relation(data, length);

	if (is_in_copy(rel))
		leave_out(rel);
	else
		papply_target_use_version(papply_registry_add_at_start(data, length, InvalidOid));
}

static void
apply_change(const PapplyMessage *message)
{
	PapplyTarget *target;

	if (list_member_oid(remote.left_out, message->id))
		return;
	target = papply_target_cache_find(message->id);
	if (target == NULL)			/* its relation has not been described */
		papply_message_malformed();
	if (++remote.changes % PAPPLY_SNAPSHOT_CHANGES == 0)
	{
		AcceptInvalidationMessages();	/* rights may have changed */
		papply_local_renew_snapshot();
	}
	(void) papply_apply_change(message->data, message->length, target->version, true, true);
	CommandCounterIncrement();
	if (papply_conflict_must_report())
		papply_conflict_report_all();
}

/*
 * Remove tables without a definition, since these are left out here, or were when the
 * transaction was stored.  Returns the new length.
 */
static int
reduce_truncate(const PapplyMessage *message, char *data)
{
	char	   *relids = data + PAPPLY_MESSAGE_BODY + 1;
	uint32		kept = 0;
	uint32		count;

	for (uint32 i = 0; i < papply_message_truncated(message); i++)
	{
		if (papply_target_cache_find(papply_message_truncated_relid(message, i)) != NULL)
			memmove(relids + kept++ * sizeof(LogicalRepRelId),
					relids + i * sizeof(LogicalRepRelId), sizeof(LogicalRepRelId));
	}
	count = pg_hton32(kept);
	memcpy(data + 1, &count, sizeof(count));
	return kept == 0 ? 0 : relids + kept * sizeof(LogicalRepRelId) - data;
}

static void
apply_truncate(const PapplyMessage *message, char *data)
{
	int			length = reduce_truncate(message, data);

	if (length == 0)
		return;
	papply_apply_begin_code();
	papply_truncate(data, length);
	CommandCounterIncrement();
}

static void
apply_message(char *data, int length)
{
	MemoryContext old_context = MemoryContextSwitchTo(replay_process.message_context);
	PapplyMessage message = papply_message_read(data, length);

	remote.message_type = message.kind;
	switch (message.kind)
	{
		case LOGICAL_REP_MSG_BEGIN:
		case LOGICAL_REP_MSG_BEGIN_PREPARE:
			note_begin(&message);
			break;
		case LOGICAL_REP_MSG_RELATION:
			use_relation(data, length);
			break;
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			apply_change(&message);
			break;
		case LOGICAL_REP_MSG_TRUNCATE:
			apply_truncate(&message, data);
			break;
		case LOGICAL_REP_MSG_COMMIT:
		case LOGICAL_REP_MSG_PREPARE:
			note_end(&message);
			break;
		default:
			break;
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(replay_process.message_context);
}

static void
describe_message(void *arg)
{
	if (remote.message_type != 0)
		papply_message_add_context(replay->subid, remote.message_type, papply_apply_table(),
								   remote.xid, remote.final_lsn);
}

/*** the local transaction ***/

/* The last message has the end of the transaction. */
static void
find_end(void)
{
	PapplyStoredScan *scan = papply_stored_begin_scan(replay->id);
	int			length;
	char	   *data = scan == NULL ? NULL : papply_stored_last(scan, &length);

	if (data != NULL)
	{
		PapplyMessage message = papply_message_read(data, length);

		remote.end_lsn = papply_message_end_lsn(&message);
	}
	if (scan != NULL)
		papply_stored_end_scan(scan);
}

/* Returns false if nothing is stored. */
static bool
apply_messages(void)
{
	PapplyStoredScan *scan = papply_stored_begin_scan(replay->id);
	bool		has_any = false;
	char	   *message;
	int			length;

	if (scan == NULL)
		return false;
	while ((message = papply_stored_next(scan, &length)) != NULL)
	{
		has_any = true;
		apply_message(message, length);
	}
	remote.message_type = 0;
	papply_stored_end_scan(scan);
	return has_any;
}

static void
refuse_missing(void)
{
	if (papply_stored_subscription(replay->id) == replay->subid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("transaction with number %lld cannot be replayed yet",
						(long long) replay->id),
				 errdetail("It has not been skipped, or it is prepared.")));
	papply_stored_refuse_missing(replay->id);
}

/* User code may have caught the error that the signal has caused. */
static void
check_terminated(void)
{
	if (replay_process.is_terminated)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("canceling statement due to user request")));
}

static void
refuse_changed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("the subscription was dropped, or has another owner, since the call")));
}

/*
 * Lock the subscription against DROP until the end of the local transaction, or
 * throw.
 */
static void
hold_subscription(void)
{
	HeapTuple	subscription;

	LockSharedObject(SubscriptionRelationId, replay->subid, 0, AccessShareLock);
	subscription = SearchSysCache1(SUBSCRIPTIONOID, ObjectIdGetDatum(replay->subid));
	if (!HeapTupleIsValid(subscription) ||
		((Form_pg_subscription) GETSTRUCT(subscription))->subowner != replay->userid)
		refuse_changed();
	ReleaseSysCache(subscription);
}

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	papply_local_begin();
	papply_target_begin_range(false);
	papply_rights_begin_range();
	papply_apply_begin_range();
	papply_postpone_begin_range(1, NULL);
	replay_process.message_context = AllocSetContextCreate(TopTransactionContext, "parallel_apply message",
														   ALLOCSET_DEFAULT_SIZES);
}

static void
commit_transaction(void)
{
	PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;
	PAPPLY_SESSION_ORIGIN_TIMESTAMP = remote.commit_time;
	CommitTransactionCommand();
	replay->is_committed = true;
	papply_account_end_tables(true);
	ereport(LOG,
			(errmsg("skipped transaction %u of subscription \"%s\", finished at " PAPPLY_LSN_FORMAT ", is replayed",
					remote.xid, MySubscription->name, LSN_FORMAT_ARGS(remote.final_lsn))));
}

static void
apply_transaction(void)
{
	ErrorContextCallback error_context = {error_context_stack, describe_message, NULL};

	error_context_stack = &error_context;
	begin_transaction();
	find_end();
	if (!apply_messages())
		refuse_missing();
	papply_insert_run_flush();
	papply_target_close_all();
	papply_conflict_report_all();
	AfterTriggerFireDeferred(); /* may wait, so it comes before the locks */
	hold_subscription();
	if (papply_stored_remove(replay->id) == 0)
		refuse_missing();
	PopActiveSnapshot();
	check_terminated();
	commit_transaction();
	error_context_stack = error_context.previous;
}

/*** the replication origin ***/

static char *
origin_name(Oid subid)
{
	return psprintf(PAPPLY_NAME "_replay_%u", subid);
}

void
papply_replay_drop_origin(Oid subid)
{
	char	   *name = origin_name(subid);
	LOCKTAG		tag;

	if (replorigin_by_name(name, true) == PAPPLY_NO_ORIGIN)
		return;
	SET_LOCKTAG_OBJECT(tag, InvalidOid, SubscriptionRelationId, subid, REPLAY_LOCK);
	if (LockAcquire(&tag, ExclusiveLock, false, true) != LOCKACQUIRE_NOT_AVAIL)
		replorigin_drop_by_name(name, true, true);
}

/* Take the session of an origin that is not the one of the subscription. */
static void
begin_origin(void)
{
	PapplyOriginId session_origin;
	char	   *name;

	StartTransactionCommand();
	hold_subscription();
	name = origin_name(replay->subid);
	papply_pool->origin.id = replorigin_by_name(psprintf("pg_%u", replay->subid), false);
	session_origin = replorigin_by_name(name, true);
	if (session_origin == PAPPLY_NO_ORIGIN)
		session_origin = replorigin_create(name);
	CommitTransactionCommand();
	replay_process.has_origin = true;
	papply_compat_origin_setup(session_origin, 0);
	replay_process.has_origin_session = true;
}

/* Nothing can interrupt this; the process is about to exit. */
static void
end_origin(void)
{
	HOLD_INTERRUPTS();
	if (replay_process.has_origin_session)
		papply_compat_origin_release();
	PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;
	PAPPLY_SESSION_ORIGIN_TIMESTAMP = 0;
	if (!replay_process.has_origin)
		return;
	StartTransactionCommand();
	replorigin_drop_by_name(origin_name(replay->subid), true, true);
	CommitTransactionCommand();
}

/*** the process ***/

/*
 * Handle SIGTERM, which the session sends if it does not wait any longer: roll
 * back.
 */
static void
handle_terminate(SIGNAL_ARGS)
{
	replay_process.is_terminated = true;
	papply_pool_cancel();
}

static void
note_error(const ErrorData *data)
{
	PapplyReplayError *error = &replay->error;

	papply_text_copy(error->message, data->message, sizeof(error->message));
	papply_text_copy(error->detail, data->detail, sizeof(error->detail));
	papply_text_copy(error->hint, data->hint, sizeof(error->hint));
	papply_text_copy(error->context, data->context, sizeof(error->context));
	papply_text_copy(error->schema_name, data->schema_name, NAMEDATALEN);
	papply_text_copy(error->table_name, data->table_name, NAMEDATALEN);
	papply_text_copy(error->column_name, data->column_name, NAMEDATALEN);
	papply_text_copy(error->datatype_name, data->datatype_name, NAMEDATALEN);
	papply_text_copy(error->constraint_name, data->constraint_name, NAMEDATALEN);
	error->sqlerrcode = data->sqlerrcode;
}

/* Roll back, and leave the error to the session, which reports it. */
static void
recover_from_error(void)
{
	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(TopMemoryContext);
	note_error(CopyErrorData());
	FlushErrorState();
	papply_target_forget_all();
	AbortOutOfAnyTransaction();
	RESUME_INTERRUPTS();
}

/* Runs after the server's exit callback has ended the transaction. */
static void
unlock_at_exit(int code, Datum arg)
{
	LockReleaseAll(DEFAULT_LOCKMETHOD, true);
}

static void
lock_replay(void)
{
	StartTransactionCommand();
	LockSharedObjectForSession(SubscriptionRelationId, replay->subid, REPLAY_LOCK,
							   ExclusiveLock);
	CommitTransactionCommand();
}

static void
start_process(void)
{
	papply_pool_create_private(replay->dbid, replay->subid, replay->userid);
	papply_session_connect();
	SetConfigOption("synchronous_commit", replay->synchronous_commit, PGC_SUSET, PGC_S_OVERRIDE);
	lock_replay();
	begin_origin();
	if (!papply_session_load_subscription())
		refuse_changed();
	papply_registry_create();
	papply_target_init();
	papply_rights_init();
}

void
papply_replay_main(Datum main_arg)
{
	dsm_segment *segment;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, handle_terminate);
	BackgroundWorkerUnblockSignals();
	segment = dsm_attach(DatumGetUInt32(main_arg));
	if (segment == NULL)
		proc_exit(0);			/* the session has ended */
	dsm_pin_mapping(segment);
	replay = dsm_segment_address(segment);
	before_shmem_exit(unlock_at_exit, (Datum) 0);
	PG_TRY();
	{
		start_process();
		apply_transaction();
	}
	PG_CATCH();
	{
		recover_from_error();
	}
	PG_END_TRY();
	end_origin();
	proc_exit(0);
}
