/*-------------------------------------------------------------------------
 * core_loop.c
 *	  Pass transactions to the core apply loop.
 *
 * Runs in the receiver.
 *
 * There are two ways.  A direct transaction is passed from the connection to
 * the core apply loop (LogicalRepApplyLoop), message by message, while nothing
 * else is in flight.  A queued transaction is replayed from the queue when all
 * before it are committed.  It was marked by the receiver, because of a
 * message that writers do not handle for instance, or by a writer that failed
 * twice.  If its end is not in the queue, the rest is passed directly.
 *
 * Errors, log messages, statistics, SKIP and disable_on_error of such a
 * transaction are PostgreSQL's own, because PostgreSQL's code applies it.
 *
 * The replication origin: up to PostgreSQL 15, the receiver takes its session
 * here, and passes it on when the core apply loop has committed.  While the
 * receiver does not have the session, PAPPLY_SESSION_ORIGIN is invalid.  The
 * core apply loop commits catalog changes of its own, and a commit with an
 * origin but without a session would crash.
 *
 * A commit that has changed nothing, because the transaction's tables are
 * being synchronized, does not move the origin.  But the transaction is
 * confirmed to the publisher, which need not send it again, and an apply
 * worker that starts afterwards would make a synchronization worker catch up
 * only to the origin.  If the publisher was restarted, it may send the
 * transaction again, which would then be applied, because the table is ready.
 * (If only the core apply loop has the session, its commit that makes the
 * table ready moves the origin.) So the origin is moved here, and that is
 * WAL-logged.
 *
 * If the process ends within a transaction, that is rolled back and fetched
 * again.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xloginsert.h"

#include "clock.h"
#include "core_loop.h"
#include "dispatch.h"
#include "leader_waits.h"
#include "origin.h"
#include "pool.h"
#include "queue.h"
#include "relation_registry.h"
#include "remote_relation.h"
#include "replication_role.h"
#include "slow_log.h"
#include "spool.h"
#include "statistics.h"
#include "tap.h"

typedef struct Applying
{
	bool		is_active;
	bool		reads_queue;
	bool		reads_spool;	/* before the next message in the queue */
	bool		is_ended;		/* the last message has been passed on */
	bool		is_leader_transaction;	/* see leader_policy.c */
	uint64		seqno;
	uint64		position;		/* in the queue, of the next entry */
	PapplyOriginId origin;
	uint32		local_changes;	/* when it was received */

	bool		may_run_code;	/* it has changed a table that may */

	/* of what did not come through the queue */
	uint16		exclusive_reason;	/* as of a queued transaction; 0: none */
	uint16		fallback_reason;
} Applying;

static Applying applying;

static StringInfoData definition;	/* from the registry, in memory that is
									 * kept */

bool
papply_core_loop_is_active(void)
{
	return applying.is_active;
}

uint64
papply_core_loop_seqno(void)
{
	return applying.seqno;
}

bool
papply_core_loop_has_leader_transaction(void)
{
	return applying.is_active && applying.is_leader_transaction;
}

bool
papply_core_loop_reads_queue(void)
{
	return applying.is_active && applying.reads_queue;
}

static void
begin_applying(uint64 seqno, PapplyOriginId origin)
{
	Assert(!applying.is_active);
	memset(&applying, 0, sizeof(applying));
	applying.seqno = seqno;
	applying.origin = origin;
	papply_role_take();
	papply_leader_waits_begin();
	papply_statistics_progress->leader.began_at = papply_clock_now();
	if (origin != PAPPLY_NO_ORIGIN)
	{
		papply_origin_take();
		PAPPLY_SESSION_ORIGIN = origin;
	}
	applying.is_active = true;	/* and has the session of the origin */
}

void
papply_core_loop_begin_queued(uint64 seqno, PapplyOriginId origin)
{
	Assert(seqno == papply_pool_committed() + 1);
	Assert(papply_queue_is_by_leader(papply_queue_transaction(seqno)));
	begin_applying(seqno, origin);
	applying.reads_queue = true;
	applying.is_leader_transaction = papply_queue_applier(seqno) == PAPPLY_BY_LEADER_POLICY;
	applying.local_changes = papply_queue_transaction(seqno)->local_changes;
	applying.position = papply_queue_transaction(seqno)->start_position;
}

void
papply_core_loop_begin_direct(PapplyOriginId origin, bool is_leader_transaction)
{
	begin_applying(PAPPLY_NO_SEQNO, origin);
	applying.is_leader_transaction = is_leader_transaction;
	applying.local_changes = papply_remote_relation_local_changes();
}

/*
 * Give the core apply loop that version of a relation, unless it has it;
 * return the length of the message, or 0.
 */
static int
announce_version(uint32 version, char **buffer)
{
	PapplyMessage message;
	PapplyRemoteRelation *rel;
	Oid			schema;

	papply_message_reset_buffer(&definition);
	schema = papply_registry_get(version, &definition);
	message = papply_message_read(definition.data, definition.len);
	rel = papply_remote_relation_get(message.id, false);
	if (rel->native_version == version)
		return 0;
	rel->native_version = version;
	papply_tap.message = message;
	papply_tap_note();
	return papply_tap_frame(&message, schema, buffer);
}

/* Do the same for the newest version.  rel may be NULL. */
static int
announce_newest(const PapplyRemoteRelation *rel, char **buffer)
{
	return rel == NULL || rel->native_version == rel->version ? 0 :
		announce_version(rel->version, buffer);
}

/*
 * Note a message that the core apply loop is about to get.  One outside of a
 * transaction stands alone.  The core apply loop would leave a transaction open
 * after a change.
 */
static void
note_message(const PapplyMessage *message)
{
	papply_tap.message = *message;
	papply_tap_note();
	applying.is_ended = !papply_tap.is_within;
	if (applying.is_ended && papply_message_is_change(message->kind))
		papply_message_malformed();
}

/*
 * Get the next message of a transaction that was applied in progress; 0: there
 * is none.  A definition in it need not be the newest one, so the core apply
 * loop must get the newest one again afterwards.
 */
static int
next_of_spool(char **buffer)
{
	Oid			schema;
	PapplyMessage message = papply_spool_fallback_next(&schema);

	if (message.data == NULL)
	{
		applying.reads_spool = false;
		return 0;
	}
	if (message.kind == LOGICAL_REP_MSG_RELATION)
		papply_remote_relation_get(message.id, false)->native_version = 0;
	note_message(&message);
	return papply_tap_frame(&message, schema, buffer);
}

/*
 * Note whether a change of this table may run user code.  Partitions may have functions of
 * their own, which are not known here.
 */
static void
note_code(const PapplyRemoteRelation *rel)
{
	applying.may_run_code |= rel == NULL || !rel->is_current || rel->has_user_code ||
		rel->partitions != NIL || rel->apply_mode != PAPPLY_TABLE_PARALLEL;
}

int
papply_core_loop_next(char **buffer)
{
	uint64		position = applying.position;
	PapplyEntry *entry;
	PapplyMessage message;
	int			length = applying.reads_spool ? next_of_spool(buffer) : 0;

	Assert(papply_core_loop_reads_queue());
	if (length > 0)
		return length;

	for (;;)
	{
		entry = papply_queue_read(&position);
		if (entry == NULL || entry->kind == PAPPLY_ENTRY_OVERSIZE)
		{
			applying.reads_queue = false;
			return 0;
		}
		if (entry->relation_version != 0)
			length = announce_version(entry->relation_version, buffer);
		if (length > 0)
			return length;
		applying.position = position;
		if (entry->length > 0)
			break;
	}
	message = papply_message_read(PapplyEntryData(entry), entry->length);
	if (message.kind == LOGICAL_REP_MSG_TRUNCATE)
		applying.may_run_code = true;
	else if (papply_message_is_change(message.kind))
		note_code(papply_remote_relation_get(message.id, false));
	if (message.kind == LOGICAL_REP_MSG_BEGIN && papply_queue_is_in_progress(applying.seqno))
	{
		papply_spool_fallback_begin(applying.seqno);
		applying.reads_spool = true;
	}
	note_message(&message);
	Assert(message.kind != LOGICAL_REP_MSG_RELATION);
	return papply_tap_frame(&message, InvalidOid, buffer);
}

/* Note why the transaction would not be one for writers; only the first reasons count. */
static void
note_reasons(uint16 exclusive_reason, uint16 fallback_reason)
{
	if (applying.exclusive_reason == 0)
		applying.exclusive_reason = exclusive_reason;
	if (applying.fallback_reason == 0)
		applying.fallback_reason = fallback_reason;
}

/* Note what a change of this table means for the transaction. */
static void
note_table(const PapplyRemoteRelation *rel)
{
	note_code(rel);
	if (rel == NULL || papply_dispatch_is_native(rel))
		note_reasons(PAPPLY_COUNT_EXCLUSIVE_FALLBACK, PAPPLY_COUNT_FALLBACK_TABLE);
	else
		note_reasons(rel->apply_mode == PAPPLY_TABLE_EXCLUSIVE ? PAPPLY_COUNT_EXCLUSIVE_TABLE : 0,
					 rel->is_ready ? 0 : PAPPLY_COUNT_FALLBACK_SYNC);
}

/*
 * Get the definition that the core apply loop must get before this message, if
 * any.  Note whether the message may make it run user code.
 */
static int
announce_before(const PapplyMessage *message, char **buffer)
{
	PapplyRemoteRelation *rel;
	int			announced = 0;

	switch (message->kind)
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			rel = papply_remote_relation_get(message->id, true);
			note_table(rel);
			return announce_newest(rel, buffer);
		case LOGICAL_REP_MSG_TRUNCATE:
			applying.may_run_code = true;
			note_reasons(PAPPLY_COUNT_EXCLUSIVE_TRUNCATE, 0);
			for (uint32 i = 0; announced == 0 && i < papply_message_truncated(message); i++)
			{
				rel = papply_remote_relation_get(papply_message_truncated_relid(message, i), false);
				announced = announce_newest(rel, buffer);
			}
			return announced;
		default:
			return 0;
	}
}

int
papply_core_loop_before(const PapplyMessage *message, char **buffer)
{
	int			announced = 0;

	/* without a pool it has got all definitions as they arrived */
	if (applying.origin != PAPPLY_NO_ORIGIN)
		announced = announce_before(message, buffer);
	if (announced == 0)
		note_message(message);
	return announced;
}

void
papply_core_loop_abandon(void)
{
	if (PAPPLY_ORIGIN_IS_SHARED ||
		(applying.is_active && applying.origin != PAPPLY_NO_ORIGIN))
		papply_compat_origin_release();
	applying.is_active = false;
}

static void
log_if_slow(void)
{
	const PapplyLeader *leader = &papply_statistics_progress->leader;
	PapplyApplied applied = {0};

	applied.transactions = 1;
	applied.is_native = true;
	applied.waited_us[PAPPLY_COUNT_LOCK_US - PAPPLY_FIRST_TIME] = papply_leader_waits_us();
	applied.remote_xid = leader->remote_xid;
	applied.final_lsn = leader->final_lsn;
	applied.changes = leader->changes;
	papply_slow_log_report(&applied, leader->began_at);
}

/*
 * Count why the leader applied the transaction.  A leader transaction that
 * would be a fallback in any case does not count as one of the apply worker's
 * choice.  Called before it counts as committed, because its place in the
 * queue may be reused then.
 */
static void
count_reasons(void)
{
	uint16		exclusive_reason = applying.exclusive_reason;
	uint16		fallback_reason = applying.fallback_reason;

	if (applying.seqno != PAPPLY_NO_SEQNO)
	{
		exclusive_reason = papply_queue_transaction(applying.seqno)->exclusive_reason;
		fallback_reason = papply_queue_transaction(applying.seqno)->fallback_reason;
	}
	else if (!applying.is_leader_transaction)
		return;
	if (applying.is_leader_transaction && fallback_reason == 0)
		papply_statistics_count(PAPPLY_COUNT_LEADER_TRANSACTIONS, 1);
	if (exclusive_reason != 0)
		papply_statistics_count(exclusive_reason, 1);
	if (fallback_reason != 0)
		papply_statistics_count(fallback_reason, 1);
}

/*
 * Move the origin if the commit has not done so: see the head of this file.
 * It is moved in memory first, so that a checkpoint between the two steps
 * includes the move.  Return the end of the local WAL that makes it durable.
 */
static XLogRecPtr
move_origin(void)
{
	xl_replorigin_set record = {0};

	if (papply_tap.end_lsn == InvalidXLogRecPtr ||
		replorigin_session_get_progress(false) >= papply_tap.end_lsn)
		return XactLastCommitEnd;

	replorigin_session_advance(papply_tap.end_lsn, XactLastCommitEnd);
	record.remote_lsn = papply_tap.end_lsn;
	record.node_id = PAPPLY_SESSION_ORIGIN;
	XLogBeginInsert();
	XLogRegisterData((char *) &record, sizeof(record));
	return XLogInsert(RM_REPLORIGIN_ID, XLOG_REPLORIGIN_SET);
}

bool
papply_core_loop_may_have_run_code(void)
{
	return !applying.is_leader_transaction || applying.may_run_code ||
		applying.local_changes != papply_remote_relation_local_changes();
}

bool
papply_core_loop_is_ended(void)
{
	return applying.is_active && applying.is_ended;
}

void
papply_core_loop_finish(XLogRecPtr *remote_end_lsn, XLogRecPtr *local_end_lsn)
{
	Assert(papply_core_loop_is_ended());
	papply_role_leave();
	papply_leader_waits_end();
	*local_end_lsn = move_origin();
	*remote_end_lsn = papply_tap.end_lsn;
	if (papply_tap.end_lsn != InvalidXLogRecPtr)	/* else it stands alone */
	{
		if (papply_slow_log_is_on())
			log_if_slow();
		papply_tap_end();
		count_reasons();
	}
	papply_statistics_progress->leader.began_at = 0;
	if (applying.origin != PAPPLY_NO_ORIGIN)
		papply_origin_pass_on();
	applying.is_active = false;
}
