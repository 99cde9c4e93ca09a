/*-------------------------------------------------------------------------
 * dispatch.c
 *	  Turn messages of the publisher into entries of the queue.
 *
 * Runs in the receiver, while there is a pool.
 *
 * A change is put into the queue in its raw form, with the sequence number of
 * the transaction that it depends on.  A transaction is published at its
 * COMMIT.  One that grows large is published before that, so that a writer
 * applies it while it arrives.
 *
 * A transaction becomes a fallback if it contains something that writers do
 * not handle: when its turn comes, the core apply loop applies it
 * (core_loop.c).  If a part of it is already being applied, its writer finds
 * that out and gives the transaction up.  If the rows that a transaction
 * touches are not known, it is a barrier: everything after it depends on it.
 *
 * A change that has to be applied exclusively (apply_mode.c) makes its
 * transaction exclusive: it waits for everything before it, and is a barrier.
 * Transactions applied in progress are rolled back for it.  The same is true
 * of a barrier of a fallback, because its tables may run user code
 * (in_progress.c).
 *
 * A change that may run user code (function_cache.c) excludes its transaction
 * from batches.
 *
 * A table that is not READY makes a transaction a fallback.  What PostgreSQL's
 * own apply does with changes of that table depends on the position of the
 * table's synchronization worker, which in turn depends on the position of the
 * core apply loop.  So the decision must be made in order with both.
 *
 * COMMIT PREPARED and ROLLBACK PREPARED are transactions of their own.  A
 * transaction that begins in any other way is passed directly to the core
 * apply loop, after the pool has been drained.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/memutils.h"

#include "claim.h"
#include "connection.h"
#include "dependency.h"
#include "dispatch.h"
#include "exclusive.h"
#include "in_progress.h"
#include "leader_policy.h"
#include "pool.h"
#include "prepared.h"
#include "queue.h"
#include "remote_relation.h"
#include "row_keys.h"
#include "session_state.h"
#include "speedup.h"
#include "statistics.h"
#include "tap.h"

/*
 * 2^18 entries, 2 MB.  Writers work on some thousands of changes at a time, so
 * few changes share an entry.
 */
#define DEPENDENCY_BITS 18

/* A transaction is published before its end beyond this size ... */
#define PUBLISH_OPEN_BYTES (64 * 1024)

/* ... or this part of the ring, and then in steps of this size. */
#define PUBLISH_OPEN_PART 8
#define PUBLISH_STEP_BYTES (8 * 1024)

/* The transaction that is being received. */
typedef struct OpenTransaction
{
	bool		is_open;
	bool		is_fallback;	/* made a fallback before it was published */
	bool		is_barrier;		/* everything after depends on it */
	bool		has_oversize;	/* the queue has the entry for that */
	bool		is_leader_transaction;	/* may still turn out to be a leader
										 * transaction */
	char		end_kind;		/* kind of the message that must end it */
	int			in_progress;	/* its place, if it was applied in progress */
	uint64		seqno;
	XLogRecPtr	final_lsn;		/* of BEGIN; its end must have the same */
	uint64		nearest;		/* greatest older number a change depends on */
	uint64		changes;
} OpenTransaction;

static OpenTransaction open_txn;

/* All transactions. */
typedef struct Dispatched
{
	PapplyChange change;		/* the one being read; too large for the stack */
	PapplyDependency *dependencies;
	TimestampTz newest_commit_time; /* 0: there is none, or it was taken */
} Dispatched;

static Dispatched dispatched;

void
papply_dispatch_reset(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	if (dispatched.dependencies != NULL)
		pfree(dispatched.dependencies);
	dispatched.dependencies = papply_dependency_create(DEPENDENCY_BITS);
	MemoryContextSwitchTo(old_context);
	papply_prepared_reset();
	papply_speedup_reset();
	open_txn.is_open = false;
}

bool
papply_dispatch_is_open(void)
{
	return open_txn.is_open;
}

TimestampTz
papply_dispatch_take_commit_time(void)
{
	TimestampTz commit_time = dispatched.newest_commit_time;

	dispatched.newest_commit_time = 0;
	return commit_time;
}

bool
papply_dispatch_may_be_for_leader(void)
{
	return open_txn.is_open && open_txn.is_leader_transaction && !papply_queue_open_is_published();
}

bool
papply_dispatch_is_oversize(void)
{
	return open_txn.is_open && open_txn.has_oversize;
}

/* Complete the open transaction, whose last message is in the queue. */
static void
end_transaction(XLogRecPtr remote_end_lsn)
{
	Assert(open_txn.is_open && open_txn.seqno == papply_queue_last_seqno());
	if (open_txn.is_barrier)
		papply_dependency_record_all(dispatched.dependencies, open_txn.seqno);
	open_txn.is_open = false;
	papply_speedup_add(&papply_pool->speedup, open_txn.seqno, open_txn.nearest, open_txn.changes);
	papply_queue_end(remote_end_lsn);
	papply_awake_wake_for_backlog();
	if (open_txn.in_progress != PAPPLY_NO_PLACE)
		papply_in_progress_complete(open_txn.in_progress);
}

/*
 * End a transaction that might be a leader transaction, so that no writer was
 * woken at its BEGIN.  Leave it to the core apply loop if the receiver keeps
 * up; else wake a writer.
 */
static void
end_small(XLogRecPtr remote_end_lsn)
{
	bool		keeps_up = papply_leader_policy_keeps_up();

	if (keeps_up)
		papply_queue_mark_leader_transaction(open_txn.seqno);
	end_transaction(remote_end_lsn);
	if (keeps_up)
		papply_queue_skip(open_txn.seqno);
	else
		papply_awake_wake_for_work();
}

static void
append_message(const PapplyMessage *message, uint32 relation_version, uint64 dependency)
{
	papply_queue_append(PAPPLY_ENTRY_MESSAGE, message->data, message->length, relation_version,
						dependency);
}

/*
 * Is there space for the first or last message of a transaction?  One that
 * never has any would be held forever.
 */
static bool
has_space_for_bound(const PapplyMessage *message)
{
	if (papply_queue_has_space(message->length))
		return true;
	if (!papply_queue_can_hold(message->length))
		papply_message_malformed();
	return false;
}

static PapplyFate
end_ordinary(const PapplyMessage *message)
{
	PapplyCommit commit;

	papply_message_parse_commit(message, &commit);
	if (commit.type != open_txn.end_kind || commit.commit_lsn != open_txn.final_lsn)
		papply_message_malformed();
	if (!has_space_for_bound(message))
		return PAPPLY_HELD;
	append_message(message, 0, PAPPLY_NO_SEQNO);
	if (message->kind == LOGICAL_REP_MSG_PREPARE)
	{
		if (open_txn.is_barrier)
			papply_prepared_add_all();
		papply_prepared_end(commit.xid);
	}
	if (papply_dispatch_may_be_for_leader() && !open_txn.is_fallback)
		end_small(commit.end_lsn);
	else
		end_transaction(commit.end_lsn);
	return PAPPLY_TAKEN;
}

/* The rows that it has touched are not known, so it is a barrier. */
void
papply_dispatch_mark_in_progress(int place)
{
	Assert(open_txn.is_open && open_txn.in_progress == PAPPLY_NO_PLACE);
	open_txn.in_progress = place;
	open_txn.is_leader_transaction = false;
	open_txn.is_barrier = true;
	papply_queue_mark_in_progress(open_txn.seqno);
}

void
papply_dispatch_end_direct(XLogRecPtr remote_end_lsn)
{
	open_txn.is_barrier = true;
	papply_prepared_forget();
	end_transaction(remote_end_lsn);
}

/*
 * Have the core apply loop apply the open transaction.  If that has been
 * published, leave it to its writer, as the head of this file says.
 */
static void
make_fallback(PapplyCounter reason)
{
	Assert(open_txn.is_open);
	if (open_txn.is_fallback || papply_queue_open_is_published())
		return;
	open_txn.is_fallback = true;
	papply_queue_leave_to_leader(open_txn.seqno, PAPPLY_BY_LEADER, reason);
}

/* Its only message, a COMMIT PREPARED or ROLLBACK PREPARED, is in the queue. */
static void
finish_prepared(const PapplyBegin *begin)
{
	if (papply_tap_needs.prepared_ends)
		make_fallback(PAPPLY_COUNT_FALLBACK_SUBSCRIPTION);
	else
		papply_queue_set_exclusivity(open_txn.seqno, PAPPLY_SEPARATE);
	papply_prepared_finish(begin->xid, dispatched.dependencies, open_txn.seqno);
	end_transaction(begin->end_lsn);
}

static PapplyFate
begin_transaction(const PapplyMessage *message, const PapplyBegin *begin)
{
	uint64		seqno;
	PapplyTransaction *txn;

	Assert(!open_txn.is_open);
	if (!has_space_for_bound(message) ||
		!papply_queue_begin(begin->xid, begin->final_lsn, &seqno))
		return PAPPLY_HELD;
	open_txn = (OpenTransaction)
	{
		.is_open = true,
			.in_progress = PAPPLY_NO_PLACE,
			.seqno = seqno,
			.final_lsn = begin->final_lsn,
			.nearest = PAPPLY_NO_SEQNO,
	};
	txn = papply_queue_transaction(seqno);
	txn->local_changes = papply_remote_relation_local_changes();
	txn->commit_time = dispatched.newest_commit_time = begin->commit_time;
	append_message(message, 0, PAPPLY_NO_SEQNO);
	switch (message->kind)
	{
		case LOGICAL_REP_MSG_BEGIN:
			open_txn.end_kind = LOGICAL_REP_MSG_COMMIT;
			open_txn.is_leader_transaction = papply_pool_committed() + 1 == seqno &&
				papply_in_progress_count() == 0 &&
				papply_leader_policy_may_begin(papply_connection_last.send_time - begin->commit_time);
			break;
		case LOGICAL_REP_MSG_BEGIN_PREPARE:
			open_txn.end_kind = LOGICAL_REP_MSG_PREPARE;
			papply_queue_set_exclusivity(seqno, PAPPLY_SEPARATE);
			papply_prepared_begin();
			break;
		default:
			finish_prepared(begin);
	}
	return PAPPLY_TAKEN;
}

/*
 * Make the open transaction exclusive; only the first reason is recorded.  It
 * may run user code that can notice the locks of younger transactions.  In its
 * turn it makes sure that there are none (exclusive.c).
 * If it has been published, its writer finds out that it is exclusive.
 */
static void
make_exclusive(PapplyCounter reason)
{
	Assert(open_txn.is_open);
	if (!open_txn.is_barrier)
		papply_queue_transaction(open_txn.seqno)->exclusive_reason = reason;
	open_txn.is_barrier = true;
	papply_exclusive_announce(open_txn.seqno);
	papply_queue_set_exclusivity(open_txn.seqno, PAPPLY_EXCLUSIVE);
}

static void
make_fallback_barrier(PapplyCounter reason)
{
	make_exclusive(PAPPLY_COUNT_EXCLUSIVE_FALLBACK);
	make_fallback(reason);
}

/*
 * Hold a message that never fits into the queue.  The core apply loop gets it
 * directly, when its transaction is the oldest one and the part in the queue
 * has been applied.
 */
static PapplyFate
hold_oversize(void)
{
	make_fallback_barrier(PAPPLY_COUNT_FALLBACK_MESSAGE);
	if (!open_txn.has_oversize && papply_queue_has_space(0))
	{
		papply_queue_append(PAPPLY_ENTRY_OVERSIZE, NULL, 0, 0, PAPPLY_NO_SEQNO);
		papply_awake_publish_open();
		open_txn.has_oversize = true;
	}
	return PAPPLY_HELD;
}

/* Publish more of a transaction that grows, for a writer to apply. */
static void
publish_if_large(void)
{
	uint64		limit = Min(PUBLISH_OPEN_BYTES,
							papply_pool->queue.ring_bytes / PUBLISH_OPEN_PART);

	if (papply_queue_open_is_published() ?
		papply_queue_unpublished_bytes() >= Min(PUBLISH_STEP_BYTES, limit) :
		!open_txn.is_fallback && papply_queue_open_size() >= limit)
		papply_awake_publish_open();
}

/*
 * Return the greatest sequence number that a change with these keys depends
 * on.  Set *which to the index of the hash that causes this dependency, or to
 * -1.  If the table says that the open transaction itself has written a key
 * (or another key with the same entry), the previous writer of that key is no
 * longer known.  The open transaction depends on that writer too, so it is not
 * greater than nearest.
 */
static uint64
find_dependency(const PapplyHashes *hashes, int *which)
{
	uint64		dependency;

	*which = -1;
	if (hashes->is_incomplete)
		return open_txn.seqno - 1;
	dependency = papply_dependency_floor(dispatched.dependencies);
	for (int i = 0; i < hashes->count; i++)
	{
		uint64		seqno = papply_dependency_find(dispatched.dependencies, hashes->hashes[i]);
		bool		is_own = seqno == open_txn.seqno;

		if (is_own)
			seqno = open_txn.nearest;
		if (seqno <= dependency)
			continue;
		dependency = seqno;
		*which = is_own ? -1 : i;
	}
	Assert(dependency <= open_txn.seqno);
	return dependency;
}

/* Note a change for the estimate in speedup.c. */
static void
note_change(uint64 dependency)
{
	open_txn.changes++;
	if (dependency < open_txn.seqno)
		open_txn.nearest = Max(open_txn.nearest, dependency);
	Assert(open_txn.nearest < open_txn.seqno);
}

/*
 * Record which key causes the dependency of the change that was queued last,
 * so that its writer can report what it waits for.
 */
static void
name_key(const PapplyRowKeys *keys, const PapplyHashes *hashes, int which)
{
	PapplyKeyName key;

	key.is_old = hashes->is_old[which];
	key.hash = Max(1, hashes->hashes[which] >> 33);
	key.index = keys->keys[hashes->keys[which]].index;
	papply_queue_set_key(&key);
}

static void
record_keys(const PapplyHashes *hashes)
{
	if (hashes->is_incomplete)
		papply_dependency_record_all(dispatched.dependencies, open_txn.seqno);
	for (int i = 0; i < hashes->count; i++)
		papply_dependency_record(dispatched.dependencies, hashes->hashes[i], open_txn.seqno);
	papply_prepared_add(hashes);
}

bool
papply_dispatch_is_native(const PapplyRemoteRelation *rel)
{
	return rel == NULL || rel->apply_mode == PAPPLY_TABLE_NATIVE ||
		((rel->apply_mode == PAPPLY_TABLE_EXCLUSIVE || rel->has_user_code) &&
		 papply_single_session_is_on()) ||
		papply_session_settings_exist();
}

static void
dispatch_change(const PapplyMessage *message)
{
	PapplyRemoteRelation *rel;
	PapplyHashes hashes = {0};
	bool		is_exclusive;
	int			which = -1;
	uint64		dependency;
	uint32		version = 0;

	papply_message_parse_change(message, &dispatched.change);
	rel = papply_remote_relation_get(message->id, true);
	is_exclusive = rel != NULL && rel->apply_mode == PAPPLY_TABLE_EXCLUSIVE;
	if (papply_dispatch_is_native(rel))
		make_fallback_barrier(PAPPLY_COUNT_FALLBACK_TABLE);
	else if (!rel->is_ready)
		make_fallback(PAPPLY_COUNT_FALLBACK_SYNC);
	if (is_exclusive)
		make_exclusive(PAPPLY_COUNT_EXCLUSIVE_TABLE);
	if (rel != NULL)
	{
		if (rel->has_user_code)
			papply_queue_set_exclusivity(open_txn.seqno, PAPPLY_SEPARATE);
		open_txn.is_leader_transaction &= rel->remote->replident != REPLICA_IDENTITY_FULL;
		version = rel->version;
		papply_row_keys_compute(&rel->keys, &dispatched.change, &hashes);
	}
	dependency = is_exclusive ? open_txn.seqno - 1 : find_dependency(&hashes, &which);
	note_change(dependency);
	append_message(message, version, dependency);
	if (which >= 0)
		name_key(&rel->keys, &hashes, which);
	record_keys(&hashes);
}

/*
 * Queue a TRUNCATE.  The rows that it touches are not known: it waits for
 * everything before it, and everything after depends on it.  The definitions
 * of all its relations are queued with it, for the writer or the core apply
 * loop that applies it.
 */
static void
dispatch_truncate(const PapplyMessage *message)
{
	uint32		nrelids = papply_message_truncated(message);
	bool		is_ours = nrelids > 0;	/* else malformed; the core apply loop
										 * reports that */

	for (uint32 i = 0; i < nrelids; i++)
	{
		PapplyRemoteRelation *rel =
		papply_remote_relation_get(papply_message_truncated_relid(message, i), true);

		if (rel != NULL)
			papply_queue_append(PAPPLY_ENTRY_MESSAGE, NULL, 0, rel->version,
								PAPPLY_NO_SEQNO);
		is_ours &= rel != NULL && rel->is_ready;
	}
	if (is_ours)
		make_exclusive(PAPPLY_COUNT_EXCLUSIVE_TRUNCATE);
	else
		make_fallback_barrier(PAPPLY_COUNT_FALLBACK_SYNC);
	note_change(open_txn.seqno - 1);
	append_message(message, 0, open_txn.seqno - 1);
}

/* Queue a message inside an ordinary transaction. */
static PapplyFate
dispatch_inside(const PapplyMessage *message)
{
	uint64		needed = message->length;

	if (message->kind == LOGICAL_REP_MSG_TRUNCATE)
		needed += (uint64) papply_message_truncated(message) * MAXALIGN(sizeof(PapplyEntry));
	if (needed > PG_UINT32_MAX || !papply_queue_can_hold(needed))
		return hold_oversize();
	if (!papply_queue_has_space(needed))
		return PAPPLY_HELD;

	switch (message->kind)
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			dispatch_change(message);
			break;
		case LOGICAL_REP_MSG_TRUNCATE:
			dispatch_truncate(message);
			break;
		default:
			make_fallback_barrier(PAPPLY_COUNT_FALLBACK_MESSAGE);	/* writers do not know
																	 * it */
			append_message(message, 0, PAPPLY_NO_SEQNO);
	}
	publish_if_large();
	return PAPPLY_TAKEN;
}

PapplyFate
papply_dispatch_message(const PapplyMessage *message, const PapplyBegin *begin)
{
	switch (message->kind)
	{
		case LOGICAL_REP_MSG_RELATION:
			papply_remote_relation_update(message, papply_queue_last_seqno());
			return PAPPLY_TAKEN;
		case LOGICAL_REP_MSG_TYPE:
		case LOGICAL_REP_MSG_ORIGIN:
		case LOGICAL_REP_MSG_MESSAGE:
			return PAPPLY_TAKEN;	/* not needed to apply anything */
		case LOGICAL_REP_MSG_BEGIN:
		case LOGICAL_REP_MSG_BEGIN_PREPARE:
		case LOGICAL_REP_MSG_COMMIT_PREPARED:
		case LOGICAL_REP_MSG_ROLLBACK_PREPARED:
			if (open_txn.is_open)
				papply_message_malformed(); /* its writer would take the last
											 * two for the end */
			return begin_transaction(message, begin);
		default:
			break;
	}
	if (!open_txn.is_open)
		return PAPPLY_TO_CORE_LOOP;
	if (message->kind == LOGICAL_REP_MSG_COMMIT || message->kind == LOGICAL_REP_MSG_PREPARE)
		return end_ordinary(message);
	return dispatch_inside(message);
}
