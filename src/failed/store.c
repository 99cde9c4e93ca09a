/*-------------------------------------------------------------------------
 * store.c
 *	  Store transactions that are skipped.
 *
 * Runs in the receiver, with and without a pool.
 *
 * The server alone decides what is skipped: skip_transaction() has set the
 * skip LSN of the subscription, as ALTER SUBSCRIPTION ... SKIP does, and the
 * core apply loop (LogicalRepApplyLoop) skips the transaction with that finish
 * LSN, if it is the first one to arrive.  When the core apply loop gets the
 * BEGIN of that transaction, and the transaction is to be stored, its messages
 * are copied to a temporary file as they pass.  The core apply loop executes
 * none of them.  It begins a local transaction only at the end, which clears
 * the skip LSN and moves the replication origin.  The messages are stored in
 * that transaction, just before its commit.  So there is one commit for
 * everything.  If this process or the server ends before that commit, nothing
 * has changed:  the publisher sends the transaction again, and it is skipped
 * then.
 *
 * A prepared transaction becomes a prepared one here as well, with the stored
 * messages as its only changes.  Its ROLLBACK PREPARED removes them, and they
 * are not visible before its COMMIT PREPARED.  When one of these arrives, the
 * row that skip_transaction() has inserted gets the commit time, or is removed,
 * in a local transaction just before it.  The publisher has ended the prepared
 * transaction by then, so a crash in between loses nothing.  An apply worker
 * that finds such rows when it starts leaves the ends of all prepared
 * transactions to the core apply loop, where they are seen here.
 * skip_transaction() cannot add a row that the running apply worker has to
 * know: that one has failed, or ends when the transaction begins, as described
 * below.
 *
 * A change is read with the definition of its relation, so the definition is
 * stored before it.  The publisher may have sent the definition long ago.  Changes of a
 * table that is being copied are not stored if the copy will contain them; a TRUNCATE
 * names such a table, but its definition is not stored.
 *
 * A transaction that is too large to be stored is not skipped: the error ends
 * the process while the core apply loop still receives the transaction.
 *
 * The core apply loop gets the end of a streamed transaction long after its
 * changes.  So the connection is made without streaming if something is to be
 * stored.  If the connection was made before that was known, the process ends,
 * and the next one makes another.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_subscription_rel.h"
#include "nodes/pg_list.h"
#include "storage/buffile.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "../receiver/remote_relation.h"
#include "../receiver/tap.h"
#include "failed.h"
#include "shutdown.h"
#include "stored.h"

/* A message becomes a value, for which some more memory is allocated. */
#define MAX_MESSAGE_BYTES ((int) MaxAllocSize - 1024)

/* The transaction that is skipped and stored. */
typedef struct Store
{
	int64		id;
	TransactionId remote_xid;
	XLogRecPtr	final_lsn;
	XLogRecPtr	end_lsn;		/* InvalidXLogRecPtr: the end has not arrived */
	BufFile    *file;			/* lengths and messages */
	uint64		length;			/* number of messages in the file, or of those
								 * that are not stored yet */
	int64		bytes;			/* of all of them */
	List	   *relations;		/* those with a definition in the file */
	List	   *left_out;		/* those whose changes are not stored */
} Store;

static Store store;

static bool has_callback = false;	/* at_commit(), in this process */

/*
 * Look for transactions that are to be stored.  Return the number of the one
 * with this finish LSN, or 0.  Waits for locks only if that LSN is valid: see stored.c.
 */
static int64
look_for_requests(XLogRecPtr finish_lsn)
{
	MemoryContext old_context = CurrentMemoryContext;
	int64		id = 0;

	StartTransactionCommand();
	papply_tap_needs.prepared_ends = papply_stored_has_requests(MySubscription->oid);
	if (finish_lsn != InvalidXLogRecPtr)
		id = papply_stored_find(MySubscription->oid, finish_lsn);
	if (id != 0)				/* perhaps by a position that was withdrawn */
		papply_tap_needs.prepared_ends = true;
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
	return id;
}

/* Changes that the server spools in its own files could not be stored. */
static void
note_start(const PapplyTap *tap)
{
	MemoryContext old_context = CurrentMemoryContext;

	StartTransactionCommand();
	papply_replay_drop_origin(MySubscription->oid);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
	papply_tap_needs.whole = look_for_requests(MySubscription->skiplsn) != 0;
}

/*** the file ***/

/*
 * Throw an error if the transaction cannot be stored.  Nothing has been skipped
 * then.
 */
static void
check_size(int length)
{
	store.bytes += length;
	if (length <= MAX_MESSAGE_BYTES &&
		store.bytes <= (int64) papply_max_stored_transaction_size * 1024)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 errmsg("transaction %u of subscription \"%s\" is not skipped because it is too large to be stored",
					store.remote_xid, MySubscription->name),
			 length > MAX_MESSAGE_BYTES ?
			 errdetail("It has a change of %d bytes.", length) :
			 errdetail("It is larger than \"%s\".", PAPPLY_NAME ".max_stored_transaction_size"),
			 errhint("%s skips it without storing it.",
					 PAPPLY_NAME ".skip_transaction(..., keep => false)")));
}

static void
append_message(const PapplyMessage *message)
{
	int			length = message->length;

	check_size(length);
	BufFileWrite(store.file, &length, sizeof(length));
	BufFileWrite(store.file, message->data, length);
	store.length++;
}

static void
append_relation(const PapplyMessage *message)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	append_message(message);
	store.relations = list_append_unique_oid(store.relations, message->id);
	MemoryContextSwitchTo(old_context);
}

/*
 * Will a copy that has not ended contain the transaction?  Then the core apply loop would leave
 * out the changes of the table (should_apply_changes_for_rel() in worker.c).  When the
 * copy has ended, its position is not known any more: see replay.c.
 */
static bool
is_being_copied(const PapplyMessage *definition)
{
	MemoryContext old_context = CurrentMemoryContext;
	LogicalRepRelation *rel = papply_message_read_relation(definition->data, definition->length);
	Oid			relid;
	XLogRecPtr	copy_lsn;
	char		state;

	StartTransactionCommand();
	relid = get_relname_relid(rel->relname, get_namespace_oid(rel->nspname, true));
	state = GetSubscriptionRelState(MySubscription->oid, relid, &copy_lsn);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
	if (state == SUBREL_STATE_SYNCDONE)
		return copy_lsn > store.final_lsn;
	return state != SUBREL_STATE_READY && state != SUBREL_STATE_UNKNOWN;
}

/* This does not change while the transaction passes.  definition may be NULL. */
static bool
is_left_out(LogicalRepRelId relid, const PapplyMessage *definition)
{
	MemoryContext old_context;

	if (list_member_oid(store.relations, relid) || list_member_oid(store.left_out, relid))
		return list_member_oid(store.left_out, relid);
	if (definition == NULL || !is_being_copied(definition))
		return false;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	store.left_out = lappend_oid(store.left_out, relid);
	MemoryContextSwitchTo(old_context);
	return true;
}

/* Store the definition that a change needs.  Returns false if the change is left out. */
static bool
begin_change(LogicalRepRelId relid)
{
	PapplyRemoteRelation *rel;

	if (list_member_oid(store.relations, relid))
		return true;
	rel = papply_remote_relation_get(relid, false);
	if (is_left_out(relid, rel != NULL ? &rel->message : NULL))
		return false;
	if (rel != NULL)
		append_relation(&rel->message);
	return true;
}

static void
forget_transaction(void)
{
	if (store.file != NULL)
		BufFileClose(store.file);
	list_free(store.relations);
	list_free(store.left_out);
	memset(&store, 0, sizeof(store));
	papply_tap_needs.messages = false;
}

static void
read_exactly(void *data, size_t size)
{
	if (BufFileRead(store.file, data, size) != size)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read a transaction that is to be stored")));
}

/*** the commit ***/

/* Return the next message of the file, or NULL. */
static char *
read_message(int *length)
{
	char	   *message;

	if (store.length == 0)
		return NULL;
	store.length--;
	read_exactly(length, sizeof(*length));
	message = palloc(*length);
	read_exactly(message, *length);
	return message;
}

/*
 * The row of the transaction has been removed since its BEGIN: either the skip
 * was withdrawn, or skip_transaction() was called again, and not to store it.
 * So this local transaction, which skips it, must not commit.  The next process
 * reads again what is to be skipped.
 */
static void
restart_without_skip(void)
{
	papply_shutdown_restart("a transaction is not to be stored");
}

/*
 * An abort of the local transaction would advance the origin, and so would the next commit of
 * this process: with disable_on_error, PostgreSQL 15 commits after an error without forgetting
 * the position.
 */
static void
clear_origin(void)
{
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;
}

/* The local transaction has no origin until everything is stored. */
static void
store_transaction(void)
{
	PapplyOriginId origin = PAPPLY_SESSION_ORIGIN;

	clear_origin();
	if (!papply_stored_is_requested(store.id, MySubscription->oid))
		restart_without_skip();
	(void) BufFileSeek(store.file, 0, 0, SEEK_SET); /* to the beginning */
	PushActiveSnapshot(GetTransactionSnapshot());
	papply_stored_insert(store.id, read_message);
	PopActiveSnapshot();
	PAPPLY_SESSION_ORIGIN = origin;
	PAPPLY_SESSION_ORIGIN_LSN = store.end_lsn;
}

static void
report_stored(void)
{
	ereport(LOG,
			(errmsg("skipped transaction %u of subscription \"%s\", finished at " PAPPLY_LSN_FORMAT ", is stored with number %lld",
					store.remote_xid, MySubscription->name, LSN_FORMAT_ARGS(store.final_lsn),
					(long long) store.id)));
}

static void
at_commit(XactEvent event, void *arg)
{
	if (store.end_lsn == InvalidXLogRecPtr ||
		PAPPLY_SESSION_ORIGIN_LSN != store.end_lsn)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			store_transaction();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			report_stored();
			forget_transaction();
			break;
		case XACT_EVENT_ABORT:	/* by an error behind store_transaction() */
			clear_origin();
			break;
		default:
			break;
	}
}

/*** messages ***/

/*
 * Note that a prepared transaction is about to end.  This local transaction has
 * no origin, since the core apply loop moves the origin when it ends that one.
 */
static void
end_prepared(const PapplyMessage *message)
{
	MemoryContext old_context = CurrentMemoryContext;
	PapplyOriginId origin = PAPPLY_SESSION_ORIGIN;
	PapplyCommit commit;

	if (!papply_tap_needs.prepared_ends)
		return;
	papply_message_parse_commit(message, &commit);
	(void) look_for_requests(InvalidXLogRecPtr);
	if (!papply_tap_needs.prepared_ends)
		return;
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());	/* rows are changed */
	papply_stored_end_prepared(MySubscription->oid, commit.xid, commit.end_lsn,
							   commit.type == LOGICAL_REP_MSG_COMMIT_PREPARED ? commit.commit_time : 0);
	PopActiveSnapshot();
	CommitTransactionCommand();
	PAPPLY_SESSION_ORIGIN = origin;
	MemoryContextSwitchTo(old_context);
}

/* Begin to copy the transaction that is skipped, if it is to be stored. */
static void
begin_skipped(const PapplyTap *tap)
{
	MemoryContext old_context;
	int64		id = look_for_requests(tap->begin.final_lsn);

	if (id == 0)
		return;
	if (!papply_tap_needs.whole || !tap->is_within)
		papply_shutdown_restart("a transaction is to be skipped and stored");

	if (!has_callback)
		RegisterXactCallback(at_commit, NULL);
	has_callback = true;
	papply_remote_relation_forget_native();
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	store.file = BufFileCreateTemp(true);
	MemoryContextSwitchTo(old_context);
	store.id = id;
	store.remote_xid = tap->begin.xid;
	store.final_lsn = tap->begin.final_lsn;
	papply_tap_needs.messages = true;
}

static pg_noinline void
note_begin_or_end(const PapplyTap *tap)
{
	if (tap->message.kind == LOGICAL_REP_MSG_COMMIT_PREPARED ||
		tap->message.kind == LOGICAL_REP_MSG_ROLLBACK_PREPARED)
		end_prepared(&tap->message);
	else if (tap->begin.final_lsn == MySubscription->skiplsn)
		begin_skipped(tap);
}

static void
note_begin(const PapplyTap *tap)
{
	if (unlikely(store.file != NULL))
		forget_transaction();
	if (unlikely(tap->begin.final_lsn == MySubscription->skiplsn || papply_tap_needs.prepared_ends))
		note_begin_or_end(tap);
}

static void
note_message(const PapplyTap *tap)
{
	const PapplyMessage *message = &tap->message;

	switch (message->kind)
	{
		case LOGICAL_REP_MSG_RELATION:
			if (!is_left_out(message->id, message))
				append_relation(message);
			return;
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			if (!begin_change(message->id))
				return;
			break;
		case LOGICAL_REP_MSG_TRUNCATE:
			for (uint32 i = 0; i < papply_message_truncated(message); i++)
				(void) begin_change(papply_message_truncated_relid(message, i));
			break;
		default:
			break;
	}
	append_message(message);
	store.end_lsn = tap->end_lsn;
}

void
papply_store_init(void)
{
	papply_tap_observe(PAPPLY_TAP_START, note_start);
	papply_tap_observe(PAPPLY_TAP_BEGIN, note_begin);
	papply_tap_observe(PAPPLY_TAP_MESSAGE, note_message);
}
