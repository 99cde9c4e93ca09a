/*-------------------------------------------------------------------------
 * route.c
 *	  Decide where a message of the publisher goes.
 *
 * Runs in the receiver, with and without a pool.
 *
 * A message is spooled (spool.c), put into the queue (dispatch.c), passed to
 * the core apply loop (core_loop.c), or held until there is space or the pool
 * is drained.  It is read once, here; these get it as a PapplyMessage, and
 * answer with its fate (fate.h).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "claim.h"
#include "commit_order.h"
#include "connection.h"
#include "core_loop.h"
#include "dispatch.h"
#include "exclusive.h"
#include "feedback.h"
#include "in_progress.h"
#include "leader_policy.h"
#include "lifecycle.h"
#include "message.h"
#include "owner.h"
#include "pause_point.h"
#include "pool.h"
#include "queue.h"
#include "remote_relation.h"
#include "report.h"
#include "route.h"
#include "spool.h"
#include "statistics.h"
#include "status.h"
#include "tap.h"

/*
 * When the queue is full, the receiver sleeps until this share of its
 * transactions has committed.  Otherwise each commit would wake it, for the
 * space of one transaction.
 */
#define REFILL_SHARE 4

int
papply_route_reply(bool is_reading, char **buffer)
{
	if (!papply_lifecycle_has_pool() || !papply_report_must_reply(is_reading))
		return 0;
	return papply_tap_keepalive(papply_feedback_applied_lsn(papply_lifecycle_is_idle()),
								true, buffer);
}

/*
 * Pass on a message to the core apply loop, which is in a transaction or
 * begins one.  With OTHER_FIRST, *buffer and *length are set to the other
 * message.
 */
static PapplyFate
route_to_core_loop(const PapplyMessage *message, char **buffer, int *length)
{
	int			before = papply_core_loop_before(message, buffer);

	if (before > 0)
	{
		*length = before;
		return PAPPLY_OTHER_FIRST;
	}
	if (message->kind == LOGICAL_REP_MSG_RELATION)
	{
		PapplyRemoteRelation *rel;

		papply_remote_relation_update(message, papply_queue_last_seqno());
		rel = papply_remote_relation_get(message->id, false);
		rel->native_version = rel->version;
	}
	return PAPPLY_TO_CORE_LOOP;
}

bool
papply_route_is_between_transactions(void)
{
	return !papply_core_loop_is_active() && !papply_spool_is_open() &&
		!papply_spool_native_is_open() && !papply_dispatch_is_open();
}

/*
 * Is a transaction that begins a leader transaction, as far as can be told
 * from its first message?  See leader_policy.c.  A transaction in the spool
 * might be applied in progress meanwhile, and hold locks; so may one that has
 * left the spool, until its writer has rolled it back, and one that has just
 * committed (exclusive.c).
 */
static bool
begins_leader_transaction(char kind, const PapplyBegin *begin)
{
	return kind == LOGICAL_REP_MSG_BEGIN &&
		papply_pool_committed() == papply_queue_last_seqno() && papply_in_progress_count() == 0 &&
		papply_spool_is_empty() &&
		papply_leader_policy_may_begin(papply_connection_last.send_time - begin->commit_time) &&
		!papply_remote_relation_knows_full() &&
		papply_leader_policy_may_start(papply_connection_last.lsn, begin->final_lsn) &&
		!papply_lifecycle_needs_housekeeping() && !papply_exclusive_is_any_applied();
}

/*
 * Route a message while the core apply loop is in no transaction: into the
 * queue, or, with TO_CORE_LOOP, the core apply loop begins a transaction with
 * it.  If it is not a leader transaction, the pool is drained before.  begin is
 * NULL unless the message begins a transaction.
 */
static PapplyFate
route_to_pool(const PapplyMessage *message, const PapplyBegin *begin)
{
	if (begin == NULL || !papply_lifecycle_must_be_direct(begin->final_lsn))
	{
		PapplyFate	fate;

		if (begin != NULL && begins_leader_transaction(message->kind, begin))
		{
			papply_lifecycle_release();
			papply_status_received(begin->commit_time);
			papply_core_loop_begin_direct(papply_lifecycle_origin(), true);
			return PAPPLY_TO_CORE_LOOP;
		}
		fate = papply_dispatch_message(message, begin);
		if (fate != PAPPLY_TO_CORE_LOOP)
			return fate;
	}
	papply_lifecycle_release();
	papply_spool_revoke_in_progress();	/* the transaction may have to be
										 * exclusive */
	if (!papply_lifecycle_is_idle() || papply_in_progress_count() > 0 ||
		papply_exclusive_must_await_locks())
		return PAPPLY_HELD;
	papply_core_loop_begin_direct(papply_lifecycle_origin(), false);
	return PAPPLY_TO_CORE_LOOP;
}

/* is_spooled: the message comes from the spool. */
static PapplyFate
route_payload(const PapplyMessage *message, bool is_spooled, char **buffer, int *length)
{
	PapplyBegin first;
	PapplyBegin *begin = NULL;
	PapplyFate	fate;

	if (message->length < 1)
		return PAPPLY_TO_CORE_LOOP;
	if (papply_route_is_between_transactions())
	{
		if (papply_message_parse_first(message, &first))
			begin = &first;
		if (papply_lifecycle_is_paused() ||
			(begin != NULL && papply_pause_point_holds(begin->final_lsn)))
		{
			papply_status_hold(begin != NULL ? begin->commit_time : 0);
			return PAPPLY_HELD;
		}
	}
	if (!is_spooled &&
		(fate = papply_spool_take(message, papply_lifecycle_has_pool())) != PAPPLY_UNDECIDED)
		return fate;
	if (!papply_core_loop_is_active())
	{
		if (!papply_lifecycle_has_pool())
			papply_core_loop_begin_direct(PAPPLY_NO_ORIGIN, false);
		else if ((fate = route_to_pool(message, begin)) != PAPPLY_TO_CORE_LOOP)
			return fate;
	}
	return route_to_core_loop(message, buffer, length);
}

/*
 * Handle a keepalive of the publisher.  The core apply loop must not see its
 * position while there is a pool.  A busy publisher sends a keepalive after
 * each transaction, and the core apply loop would answer each.  So it gets
 * only those that request a reply; keepalive_if_due() in receiver.c sends it
 * others.
 */
static PapplyFate
route_keepalive(const PapplyReceived *keepalive, char **buffer, int *length)
{
	if (keepalive->end_lsn > papply_feedback_received_lsn())
		papply_report_received();
	papply_feedback_received(keepalive->end_lsn);
	papply_connection_note_keepalive(keepalive);
	if (!papply_lifecycle_has_pool())
		return PAPPLY_TO_CORE_LOOP;
	if (!keepalive->requests_reply)
		return PAPPLY_TAKEN;
	papply_lifecycle_release();
	if (papply_report_flush())
		return PAPPLY_TAKEN;
	papply_report_asked();
	*length = papply_tap_keepalive(papply_feedback_applied_lsn(papply_lifecycle_is_idle()),
								   true, buffer);
	return PAPPLY_TO_CORE_LOOP;
}

/* Return the local schema of a definition that was just noted. */
static Oid
schema_of(const PapplyMessage *message)
{
	PapplyRemoteRelation *rel = NULL;

	if (message->kind == LOGICAL_REP_MSG_RELATION)
		rel = papply_remote_relation_get(message->id, false);
	return rel != NULL ? rel->schema : InvalidOid;
}

PapplyFate
papply_route_message(char **buffer, int *length)
{
	PapplyReceived received = papply_message_open(*buffer, *length);
	bool		is_spooled = papply_spool_is_reading();
	int			reply = papply_route_reply(!is_spooled, buffer);
	PapplyFate	fate;

#ifdef PAPPLY_SELFTEST
	papply_statistics_progress->routed_messages++;
#endif
	if (reply > 0)
	{
		*length = reply;
		return PAPPLY_OTHER_FIRST;
	}
	if (received.type == 'k')
		return route_keepalive(&received, buffer, length);
	if (received.type != 'w')
		return PAPPLY_TO_CORE_LOOP;

	papply_connection_last.lsn = received.lsn;
	papply_connection_last.send_time = received.send_time;
	papply_connection_last.has_sent_all &= is_spooled;
	fate = route_payload(&received.message, is_spooled, buffer, length);
	if (fate == PAPPLY_TO_CORE_LOOP && papply_lifecycle_has_pool())
		*length = papply_tap_frame(&received.message, schema_of(&received.message), buffer);

	/*
	 * The position may be the end of the transaction that the message
	 * commits, so do not record it while the message is held or its
	 * transaction has yet to be read from the spool, which the message may
	 * have begun.
	 */
	if ((fate == PAPPLY_TAKEN || fate == PAPPLY_TO_CORE_LOOP) && !papply_spool_is_reading())
	{
		papply_feedback_received(Max(received.lsn, received.end_lsn));
		if (papply_lifecycle_has_pool() && !papply_dispatch_is_open() &&
			!papply_core_loop_has_leader_transaction())
			papply_report_received();
	}
	return fate;
}

bool
papply_route_make_space(void)
{
	uint64		released = papply_queue_released_seqno();
	uint64		wake_at;

	papply_awake_wake_for_work();
	papply_lifecycle_release();
	papply_lifecycle_watch();
	if (papply_queue_released_seqno() > released)
		return true;
	if (papply_dispatch_is_open() && papply_queue_last_seqno() == released + 1)
	{
		/* larger than the queue: its writer makes space by reading it */
		if (papply_queue_unpublished_bytes() > 0)
			papply_awake_publish_open();
		if (papply_dispatch_is_oversize())
			return false;		/* its writer is about to give it up */
		if (papply_owner_reclaim_read())
			return true;
		papply_queue_want_space();
		return papply_owner_reclaim_read();
	}
	wake_at = released + 1 + (papply_queue_last_seqno() - released - 1) / REFILL_SHARE;
	papply_commit_order_wake_receiver_at(wake_at);
	return papply_pool_committed() >= wake_at;
}
