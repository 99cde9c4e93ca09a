/*-------------------------------------------------------------------------
 * lifecycle.c
 *	  Decide when a subscription has a pool; start and stop it.
 *
 * Runs in the receiver.
 *
 * A pool is wanted when the extension is installed and more than one writer is
 * configured.  This is checked again after invalidations and reloads, between
 * remote transactions, so that a pool starts, grows, shrinks and stops without
 * losing the connection.  A failure on the way must not make the subscription
 * fail: it continues without a pool, and tries again later.
 *
 * To stop the pool, new transactions are held until it is drained.  When the
 * process ends, for whatever reason, the exit callback closes the gate and
 * waits for the writers to be gone.  The next receiver fetches again
 * what they did not commit, from the replication origin.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "commands/extension.h"
#include "blockers.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/syscache.h"

#include "claim.h"
#include "clock.h"
#include "core_loop.h"
#include "decoding.h"
#include "dispatch.h"
#include "feedback.h"
#include "in_progress.h"
#include "lifecycle.h"
#include "native_streams.h"
#include "origin.h"
#include "pause_point.h"
#include "pool.h"
#include "queue.h"
#include "relation_registry.h"
#include "remote_relation.h"
#include "replication_role.h"
#include "session_state.h"
#include "shutdown.h"
#include "slow_log.h"
#include "spool.h"
#include "status.h"
#include "subscription_options.h"
#include "writer_control.h"

/*
 * Intervals of checking for writers that could not start, and whether slots
 * are free for the first writers of a pool, and of trying again to start a
 * pool that could not for another reason.
 */
#define WRITERS_INTERVAL_MS 1000
#define POOL_INTERVAL_MS 60000

/*
 * A pool that closes has the definitions sent again at most this often.  With
 * debug_discard_caches there is a reason at any time, and it would never stop.
 */
#define MAX_SENT_AGAIN 3

/* Interval of checking whether the origin was moved by another session. */
#define ORIGIN_INTERVAL_MS 100

/* Interval of checking for slots that wait for what is applied in progress. */
#define SLOTS_INTERVAL_MS 100

/* Interval of looking for a change of what batches depend on. */
#define STRICT_INTERVAL_MS 1000

/* The pool of this process. */
typedef struct OurPool
{
	bool		exists;
	bool		is_closing;		/* it stops when it is drained */
	int			sent_again;		/* while it closes, see MAX_SENT_AGAIN */
	PapplyApplyReason stop_reason;	/* while it closes */
	PapplyApplyReason start_reason; /* why the last start failed; else that it
									 * is about to start */
	PapplyOriginId origin;
	int			wanted_writers; /* as last acted upon */
	bool		lacks_slots;	/* there is no worker slot for a first writer */
	int64		checked_at;		/* when its start was tried, or its writers
								 * checked */
	int64		origin_checked_at;
	int64		slots_checked_at;	/* those that wait for what is applied in
									 * progress */
	int64		strict_checked_at;
	char	   *strict_reason;	/* as last logged; NULL: batches are possible */
	bool		has_exit_callback;
} OurPool;

static OurPool pool = {
	.stop_reason = PAPPLY_REASON_NONE,
	.start_reason = PAPPLY_REASON_STARTING,
	.origin = PAPPLY_NO_ORIGIN,
	.wanted_writers = 1,
};

/*
 * What the catalogs and settings say.  Invalidation callbacks clear what is
 * current, and set has_changed, so that the core apply loop reads the
 * subscription.
 */
typedef struct Configuration
{
	bool		is_current;
	bool		tables_are_current;
	bool		has_changed;
	bool		has_extension;
	int			num_writers;	/* for this subscription or its group */
	PapplyWritersSource source;
	bool		is_paused;
} Configuration;

static Configuration config = {
	.has_changed = true,
	.source = PAPPLY_WRITERS_FROM_SETTING,
};

/*** invalidation ***/

/*
 * Look again at the extension and the options.  The extension's functions are
 * created and dropped with it, so there is a callback for these.  Without a pool, wake the
 * core apply loop, which may be about to sleep: only its next call of receive()
 * takes account of the change.
 */
static void
invalidate_options(Datum arg, int cacheid, uint32 hashvalue)
{
	config.is_current = false;
	if (!pool.exists)
		SetLatch(MyLatch);
}

static void
invalidate_subscription(Datum arg, int cacheid, uint32 hashvalue)
{
	config.has_changed = true;
	invalidate_options(arg, cacheid, hashvalue);
}

static void
invalidate_tables(Datum arg, int cacheid, uint32 hashvalue)
{
	config.tables_are_current = false;
}

/* Read the options; without the extension nothing is configured. */
static void
read_options(void)
{
	PapplySubscriptionOptions options = {0};

	if (config.has_extension)
		papply_subscription_options_get(MySubscription->oid, &options);
	config.num_writers = papply_subscription_options_writers(&options, &config.source);
	if (options.is_paused != config.is_paused)
		ereport(LOG,
				(options.is_paused ?
				 errmsg("apply of subscription \"%s\" has been paused", MySubscription->name) :
				 errmsg("apply of subscription \"%s\" has been resumed", MySubscription->name)));
	config.is_paused = options.is_paused;
	if (config.is_paused)
		papply_spool_revoke_in_progress();	/* it holds locks */
	else
		papply_status_hold(0);
}

/*
 * Find out whether the extension is installed, and what is configured, if that
 * may have changed.  Called between remote transactions only; reads in a
 * transaction of its own.  The core apply loop reads the state of a table that
 * is synchronized again when it gets the definition again, so have it sent.
 */
static void
look_at_catalogs(void)
{
	MemoryContext old_context = CurrentMemoryContext;

	AcceptInvalidationMessages();
	if (!config.tables_are_current &&
		!(pool.is_closing && pool.sent_again++ >= MAX_SENT_AGAIN))
		papply_remote_relation_forget_native();
	config.tables_are_current = true;
	if (likely(config.is_current))
		return;

	/* drain() must not mistake the present state for that of a newer pause */
	if (config.is_paused)
		papply_status_set(pool.exists ? PAPPLY_APPLY_PARALLEL : PAPPLY_APPLY_NATIVE,
						  PAPPLY_REASON_NONE);

	config.is_current = true;
	StartTransactionCommand();
	config.has_extension = OidIsValid(get_extension_oid(PAPPLY_NAME, true));
	read_options();
	papply_writers_note_enabled(papply_subscription_options_enabled());
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
}

static int
get_wanted_writers(void)
{
	if (!config.has_extension || papply_compat_subscription_is_native() ||
		!papply_role_suits_writers())
		return 1;
	return papply_guc_writers(config.num_writers);
}

void
papply_lifecycle_init(void)
{
	CacheRegisterSyscacheCallback(PROCOID, invalidate_options, (Datum) 0);
	CacheRegisterSyscacheCallback(FOREIGNSERVEROID, invalidate_options, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONOID, invalidate_subscription, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, invalidate_tables, (Datum) 0);
}

bool
papply_lifecycle_tables_are_ready(void)
{
	MemoryContext old_context = CurrentMemoryContext;
	bool		are_ready = AllTablesyncsReady();

	MemoryContextSwitchTo(old_context);
	return are_ready;
}

bool
papply_lifecycle_wants_pool(void)
{
	look_at_catalogs();
	return get_wanted_writers() > 1;
}

bool
papply_lifecycle_has_chosen_native(void)
{
	return config.is_current && !pool.exists && !config.is_paused && !papply_pause_point_is_set() &&
		papply_role_is_replica() && get_wanted_writers() == 1 && !papply_slow_log_is_on();
}

void
papply_lifecycle_begin_housekeeping(void)
{
	config.has_changed = false;
}

bool
papply_lifecycle_needs_housekeeping(void)
{
	AcceptInvalidationMessages();
	return config.has_changed;
}

bool
papply_lifecycle_is_paused(void)
{
	return config.is_paused;
}

bool
papply_lifecycle_has_pool(void)
{
	return pool.exists;
}

PapplyOriginId
papply_lifecycle_origin(void)
{
	return pool.origin;
}

/*** the life of the pool ***/

/* Is everything that was received committed? */
bool
papply_lifecycle_is_idle(void)
{
	return !papply_core_loop_is_active() && !papply_dispatch_is_open() &&
		papply_queue_released_seqno() == papply_queue_last_seqno();
}

/* Report where the number of writers comes from. */
static int
detail_of_number(void)
{
	switch (config.source)
	{
		case PAPPLY_WRITERS_FROM_GROUP:
			return errdetail("The number of writers is configured for the group of the subscription.");
		case PAPPLY_WRITERS_FROM_SUBSCRIPTION:
			return errdetail("The number of writers is configured for the subscription.");
		default:
			return errdetail("The number of writers is that of \"%s\".",
							 PAPPLY_NAME ".writers_per_subscription");
	}
}

/* Report why parallel apply has stopped. */
static int
detail_of_stop(PapplyApplyReason reason)
{
	if (reason != PAPPLY_REASON_NONE)
		return errdetail("The apply worker continues alone because %s.",
						 papply_statistics_reason_text(reason));
	if (papply_shutdown_has_begun())
		return errdetail("The server is shutting down.");
	return errdetail("The apply worker exits.");
}

/* End the pool; PAPPLY_REASON_NONE means that the apply worker exits. */
static void
end_pool(PapplyApplyReason reason)
{
	bool		must_check = pool.exists && !papply_core_loop_is_active();
	XLogRecPtr	origin_lsn;

	Assert(papply_pool != NULL);
	papply_pool_close();
	papply_writers_end(reason == PAPPLY_REASON_NONE);
	origin_lsn = papply_pool->origin.lsn;
	papply_session_state_carry_over();
	ereport(LOG,
			(errmsg("parallel apply of subscription \"%s\" has stopped",
					MySubscription->name),
			 detail_of_stop(reason)));
	papply_pool_release();
	pool.exists = false;

	/* last, because it may fail if another session has the origin */
	if (must_check)
		papply_origin_check(pool.origin, origin_lsn, WARNING);
}

static void
drop_shared_memory(void)
{
	papply_queue_detach();
	papply_registry_detach();
	papply_remote_relation_pool_stopped();
}

/*
 * End the pool when the process exits.  This happens before the launcher is
 * notified of the exit and starts the next worker.  Without it, unmapping the
 * queue and releasing the origin would happen only later, and the next worker
 * would find the origin in use.
 */
static void
end_pool_at_exit(int code, Datum arg)
{
	if (papply_pool != NULL)
	{
		LWLockReleaseAll();		/* an error may be what ends this process */
		end_pool(PAPPLY_REASON_NONE);
		PAPPLY_SESSION_ORIGIN_LSN = InvalidXLogRecPtr;	/* an abort could
														 * advance it */
		AbortOutOfAnyTransaction();
		papply_core_loop_abandon();
		drop_shared_memory();
	}
	papply_spool_end();
}

/*
 * Create the shared memory of a pool.  Return false after any failure, which
 * must not make the subscription fail: it continues without a pool.
 */
static bool
create_shared_memory(void)
{
	MemoryContext old_context = CurrentMemoryContext;
	const char *volatile reason = NULL;

	PG_TRY();
	{
		papply_queue_create();
		papply_registry_create();
		papply_first_settings_share();
		papply_remote_relation_pool_started();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		reason = CopyErrorData()->message;
		LWLockReleaseAll();
		AtEOXact_HashTables(false);
		FlushErrorState();
	}
	PG_END_TRY();

	if (reason == NULL)
		return true;
	ereport(WARNING,
			(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
			 errmsg("could not create the queue of subscription \"%s\"",
					MySubscription->name),
			 errdetail("PostgreSQL's own apply continues: %s.", reason),
			 errhint("You might need to decrease \"%s\".", PAPPLY_NAME ".queue_size")));
	return false;
}

static void
start_pool(void)
{
	int			running = 0;

	Assert(!pool.exists && papply_pool == NULL);
	if (papply_pool_has_lacked())
	{
		pool.start_reason = PAPPLY_REASON_NO_QUEUE;
		return;
	}
	pool.start_reason = PAPPLY_REASON_NO_WRITERS;
	pool.lacks_slots = !papply_writers_may_start(pool.wanted_writers);
	if (pool.lacks_slots || !papply_pool_acquire(MyLogicalRepWorker->userid, PAPPLY_SESSION_ORIGIN))
		return;
	if (!pool.has_exit_callback)
		before_shmem_exit(end_pool_at_exit, (Datum) 0);
	pool.has_exit_callback = true;
	papply_blockers_begin_checks();

	if (create_shared_memory())
	{
		papply_role_leave();
		papply_awake_reset();
		papply_session_state_resume();
		running = papply_writers_set(pool.wanted_writers);
		pool.lacks_slots = running == 0;
	}
	else
	{
		papply_writers_lack_queue();
		pool.start_reason = PAPPLY_REASON_NO_QUEUE;
	}
	if (running == 0)
	{
		drop_shared_memory();
		papply_pool_release();
		return;
	}

	pool.origin = PAPPLY_SESSION_ORIGIN;
	papply_feedback_reset(replorigin_session_get_progress(true));
	papply_origin_pass_on();
	papply_dispatch_reset();
	pool.exists = true;
	ereport(LOG,
			(errmsg_plural("parallel apply of subscription \"%s\" has started with %d writer",
						   "parallel apply of subscription \"%s\" has started with %d writers",
						   running, MySubscription->name, running),
			 detail_of_number()));
	pool.start_reason = PAPPLY_REASON_STARTING;
}

/* Stop the pool.  It is drained, and the core apply loop has all definitions. */
static void
stop_pool(void)
{
	Assert(papply_lifecycle_is_drained());
	papply_feedback_flush(false);
	papply_role_take();
	papply_spool_revoke_in_progress();	/* those offered since */
	end_pool(pool.stop_reason);
	papply_spool_pool_stopped();
	papply_statistics_count(PAPPLY_COUNT_POOL_STOPS, 1);
	drop_shared_memory();
	if (!PAPPLY_ORIGIN_IS_SHARED)
		papply_compat_origin_setup(pool.origin, 0);
	PAPPLY_SESSION_ORIGIN = pool.origin;
	pool.origin = PAPPLY_NO_ORIGIN;
	pool.is_closing = false;

	/*
	 * start again at once if that has been requested in the meantime; or
	 * later
	 */
	pool.wanted_writers = pool.stop_reason == PAPPLY_REASON_NO_WRITERS ? get_wanted_writers() : 1;
	pool.checked_at = papply_clock_now();
}

/* End the process, because what the writer had claimed must be fetched again. */
static void
end_with_writer(int writer)
{
	if (papply_shutdown_has_begun())
		proc_exit(0);
	papply_shutdown_restart(psprintf("writer %d has ended unexpectedly", writer));
}

static void
resize_pool(int wanted)
{
	ereport(LOG,
			(errmsg("parallel apply of subscription \"%s\" was resized to %d writers",
					MySubscription->name, wanted),
			 detail_of_number()));
	if (wanted < papply_writers_wanted())
		papply_spool_revoke_in_progress();	/* all writers left could be
											 * applying streams */
	(void) papply_writers_set(wanted);
}

static PapplyApplyReason
reason_for_native(void)
{
	if (!config.has_extension)
		return PAPPLY_REASON_NO_EXTENSION;
	if (papply_compat_subscription_is_native())
		return PAPPLY_REASON_RETAIN_DEAD_TUPLES;
	if (!papply_role_suits_writers())
		return PAPPLY_REASON_ROLE;
	if (get_wanted_writers() == 1)
		return PAPPLY_REASON_ONE_WRITER;
	if (!pool.exists && papply_native_streams_exist())
		return PAPPLY_REASON_STREAMING;
	return pool.start_reason;
}

/* Begin to close the pool; what is applied in progress would be the last to end. */
static void
begin_to_close(PapplyApplyReason reason)
{
	Assert(pool.exists);
	if (!pool.is_closing)
	{
		papply_spool_revoke_in_progress();
		pool.sent_again = 0;
	}
	pool.is_closing = true;
	pool.stop_reason = reason;
}

/* Is it time to try again to start the pool? */
static bool
is_start_due(void)
{
	return papply_clock_is_due(&pool.checked_at, papply_clock_now(),
							   pool.lacks_slots ? WRITERS_INTERVAL_MS : POOL_INTERVAL_MS);
}

/* Make the number of writers follow the settings. */
static void
adjust_pool(void)
{
	int			wanted = get_wanted_writers();
	bool		has_changed = (wanted != pool.wanted_writers);

	pool.wanted_writers = wanted;
	if (pool.exists)
	{
		if (wanted == 1)
			begin_to_close(reason_for_native());
		else if (has_changed && !pool.is_closing)
			resize_pool(wanted);
	}
	else if (wanted > 1 && (has_changed || is_start_due()))
	{
		if (papply_compat_streams_in_parallel())
			papply_shutdown_restart("transactions are to be applied in parallel");
		pool.checked_at = papply_clock_now();
		start_pool();
	}
}

/*
 * There are no writers: they have exited to free their slots, or are registered
 * and cannot start, for example because no connection is left for them.  The
 * core apply loop gets what they have not claimed, and the pool stops for a
 * while.
 */
static void
give_up_writers(void)
{
	papply_queue_leave_unclaimed_to_leader();
	begin_to_close(PAPPLY_REASON_NO_WRITERS);
	pool.lacks_slots = papply_writers_wanted() == 0;
	pool.start_reason = PAPPLY_REASON_NO_WRITERS;
}

/*
 * Check the writers.  One that must exit to free its slot may be applying
 * a streamed transaction, so revoke that.  A closing pool starts no writers;
 * if there are none, the core apply loop gets what none can claim.
 */
static void
check_writers(void)
{
	if (pool.is_closing)
	{
		if (papply_writers_running() == 0)
			papply_queue_leave_unclaimed_to_leader();
		return;
	}
	if (papply_writers_surplus() > 0)
		papply_spool_revoke_in_progress();
	if (papply_writers_check() == 0)
		give_up_writers();
}

/*
 * Check that the origin was not moved.  While transactions are in flight, the
 * process whose turn it is checks that.
 */
static void
watch_origin(void)
{
	if (papply_lifecycle_is_idle() &&
		papply_clock_is_due(&pool.origin_checked_at, papply_clock_now(), ORIGIN_INTERVAL_MS))
		papply_origin_check(pool.origin, papply_pool->origin.lsn, FATAL);
}

/*
 * Revoke what is applied in progress if a logical slot waits for it; its
 * writer may be waiting for a lock.
 */
static void
give_way_to_slots(void)
{
	if (papply_in_progress_count() > 0 &&
		papply_clock_is_due(&pool.slots_checked_at, papply_clock_now(), SLOTS_INTERVAL_MS) &&
		papply_decoding_waits_for_xids())
		papply_spool_revoke_in_progress();
}

/* Log it when something begins, or ceases, to prevent batches. */
static void
watch_strictness(void)
{
	char	   *reason;

	if (!papply_clock_is_due(&pool.strict_checked_at, papply_clock_now(), STRICT_INTERVAL_MS))
		return;
	reason = papply_decoding_strict_reason();
	if (reason == NULL ? pool.strict_reason == NULL :
		pool.strict_reason != NULL && strcmp(reason, pool.strict_reason) == 0)
		return;
	if (reason != NULL)
		ereport(LOG,
				(errmsg("each transaction of subscription \"%s\" is applied by itself",
						MySubscription->name),
				 errdetail("This is so because %s.", reason)));
	else
		ereport(LOG,
				(errmsg("several transactions of subscription \"%s\" may be applied together",
						MySubscription->name)));
	if (pool.strict_reason != NULL)
		pfree(pool.strict_reason);
	pool.strict_reason = reason == NULL ? NULL : MemoryContextStrdup(TopMemoryContext, reason);
}

void
papply_lifecycle_release(void)
{
	int			exited = pg_atomic_read_u64(&papply_pool->exited_writer);
	PapplyTransaction *txn;

	Assert(pool.exists);
	if (exited > 0)
		end_with_writer(exited);
	while ((txn = papply_queue_oldest_committed()) != NULL)
	{
		papply_feedback_committed(txn->remote_end_lsn, txn->local_end_lsn);
		papply_queue_release();
	}
	papply_spool_clean(papply_queue_released_seqno());
	papply_remote_relation_clean(papply_queue_released_seqno());
}

void
papply_lifecycle_watch(void)
{
	Assert(pool.exists);
	if (papply_clock_is_due(&pool.checked_at, papply_clock_now(), WRITERS_INTERVAL_MS))
		check_writers();
	give_way_to_slots();
	watch_origin();
	watch_strictness();
}

long
papply_lifecycle_adapt(bool is_behind)
{
	return pool.is_closing ? papply_awake_adjust(is_behind) : papply_writers_adapt(is_behind);
}

bool
papply_lifecycle_must_be_direct(XLogRecPtr final_lsn)
{
	Assert(pool.exists);
	look_at_catalogs();
	return pool.is_closing || final_lsn == papply_pool_get_fallback();
}

/*
 * A transaction that was fetched again counts when it is applied: if it fails then, too,
 * its size was not the reason.
 */
static void
count_refetched(XLogRecPtr remote_end_lsn)
{
	XLogRecPtr	refetched_lsn = papply_pool_get_refetched();

	if (XLogRecPtrIsInvalid(refetched_lsn) || remote_end_lsn <= refetched_lsn)
		return;
	papply_statistics_count(PAPPLY_COUNT_REFETCHES, 1);
	papply_pool_set_refetched(InvalidXLogRecPtr);
}

void
papply_lifecycle_applied_by_leader(XLogRecPtr remote_end_lsn)
{
	count_refetched(remote_end_lsn);
	if (remote_end_lsn > papply_pool_get_fallback())
		papply_pool_set_fallback(InvalidXLogRecPtr);
}

void
papply_lifecycle_refetch(XLogRecPtr final_lsn)
{
	papply_pool_set_refetched(final_lsn);
	papply_pool_set_fallback(final_lsn);
	papply_shutdown_restart("a transaction larger than the queue could not be applied by a writer");
}

bool
papply_lifecycle_is_drained(void)
{
	return pool.exists && pool.is_closing && papply_lifecycle_is_idle();
}

static void
show_state(void)
{
	bool		is_idle = !pool.exists || papply_lifecycle_is_idle();

	if (papply_pause_point_is_reached(is_idle) || config.is_paused)
	{
		/*
		 * a reader that sees this state must see everything that was received
		 * before
		 */
		papply_status_update(pool.exists, is_idle);
		papply_status_set(PAPPLY_APPLY_PAUSED, PAPPLY_REASON_NONE);
	}
	else if (pool.exists && !pool.is_closing)
		papply_status_set(PAPPLY_APPLY_PARALLEL, papply_writers_are_missing() ?
						  PAPPLY_REASON_FEW_WRITERS : PAPPLY_REASON_NONE);
	else
		papply_status_set(pool.exists ? PAPPLY_APPLY_STOPPING : PAPPLY_APPLY_NATIVE,
						  reason_for_native());
}

/* Start, change or stop the pool, if that is possible now. */
static void
adjust(void)
{
	if (pool.exists)
		papply_lifecycle_release();
	look_at_catalogs();

	/*
	 * a transaction that the core apply loop has begun to spool is its own to
	 * the end
	 */
	if (!pool.exists && papply_native_streams_exist() && !papply_compat_streams_in_parallel())
		return;
	adjust_pool();
	if (papply_lifecycle_is_drained() && papply_remote_relation_next_unannounced() == NULL)
	{
		stop_pool();

		/* a role that a trigger has set belongs to this session */
		if (pool.wanted_writers == 1 && papply_compat_wants_parallel_streaming() &&
			papply_role_suits_writers())
			papply_shutdown_restart("transactions are not applied in parallel any more");
	}
}

void
papply_lifecycle_adjust(void)
{
	adjust();
	show_state();
}
