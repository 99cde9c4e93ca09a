/*-------------------------------------------------------------------------
 * writer_control.c
 *	  Start, retire and watch the writers of a pool.
 *
 * Runs in the receiver.
 *
 * Writers are dynamic background workers.  Their target number is
 * wanted_writers in the pool: a writer whose number is not below it exits when
 * it has nothing claimed.  Work is not assigned to writers, so they can come
 * and go without an agreement.
 *
 * The target is the configured number, or less in quiet times: a writer that
 * has been idle for some time exits, down to idle_writers_per_subscription,
 * and the writers come back when there is a backlog.  Those with low numbers
 * are woken first (awake.c), so the last ones are idle.  If another subscription
 * has work and finds no worker slot for a writer, they exit at the next check.
 *
 * Writers occupy worker slots, of which the server has max_worker_processes.
 * If these are too few, there must be fewer writers.  Otherwise a subscription
 * whose apply worker finds no slot is not applied at all, a table whose
 * synchronization worker finds none is not copied, and a parallel query runs
 * without workers.  So all writers together get what is left of
 * max_worker_processes after the running workers of other kinds and a reserve
 * (a setting).  Parallel queries use the reserve: their workers come and go too
 * fast for writers to make room.  Other workers start from the reserve, and
 * writers then exit to restore it, the last one of a pool as well.  A worker is
 * counted once it is running.  Where more enabled subscriptions lack their apply
 * worker than the reserve has slots, there is a slot left for each of them.
 *
 * If more other workers start at once than the reserve has slots, the others find no
 * slot, and PostgreSQL tries again to start them some seconds later.  By then
 * writers have exited for those that are running, because each receiver checks
 * this once a second.  So all of them get a slot in the end, unless the reserve
 * is 0 or parallel queries use all of it all the time.
 *
 * A writer that dies leaves PAPPLY_WRITER_EXITED in its slot.  Transactions
 * that it had claimed may be lost, so the receiver ends, and everything that
 * is not committed is fetched again.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "replication/logicallauncher.h"
#include "utils/memutils.h"

#include "claim.h"
#include "clock.h"
#include "in_progress.h"
#include "pool.h"
#include "queue.h"
#include "writer_control.h"

/* How long to wait before trying again to start a writer that could not. */
#define RETRY_INTERVAL_MS 60000

/* Writers come back if they have been missed for this long. */
#define SHORT_MS 20

/*
 * How long a lack of slots is shown after writers were missed last.  Between two
 * bursts of work the writers exit, so free slots do not mean that there are
 * enough.  An alert waits longer than this.
 */
#define LACK_MS 30000

/* How long other subscriptions give way to one that lacks slots. */
#define OTHER_LACKS_MS 5000

/*
 * After this time an idle writer exits for another subscription that lacks one:
 * it has been idle since the last check.
 */
#define GIVE_WAY_MS 500

/* What is known of each writer. */
typedef struct Watched
{
	BackgroundWorkerHandle *handle;
	uint64		transactions;	/* at the last check */
	int64		active_at;		/* when it was last seen to be applying
								 * transactions */
} Watched;

static Watched watched[PAPPLY_MAX_WRITERS];

/* All writers of the pool. */
typedef struct Control
{
	int			configured;		/* number of writers, at most */
	bool		has_warned;		/* that writers are missing, and not reported
								 * since that all are running */
	bool		lacked_queue;	/* the same of a queue that could not be made */
	bool		are_missing;	/* could not all be started that were wanted? */
	int64		short_since;	/* when more writers were first needed, or 0 */
	int64		lacked_at;		/* when there was last no slot for those
								 * needed, or 0 */
	int64		retried_at;		/* when one was last started that could not */
	List	   *enabled;		/* OIDs of all enabled subscriptions */
} Control;

static Control control;

/*** worker slots ***/

void
papply_writers_note_enabled(const List *subids)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	list_free(control.enabled);
	control.enabled = list_copy(subids);
	MemoryContextSwitchTo(old_context);
}

/* Return the number of apply workers that the launcher has yet to start. */
static int
lacking_apply_workers(void)
{
	int			running = 0;
	ListCell   *cell;

	foreach(cell, control.enabled)
		running += papply_compat_apply_worker_runs(lfirst_oid(cell)) ? 1 : 0;
	return Max(0, Min(list_length(control.enabled), max_logical_replication_workers) - running);
}

/*
 * Return how many slots all writers together may occupy.  It is negative if
 * other workers use the reserve.  Writers are not counted here, because pool.c
 * counts them, from their registration on.
 */
static int
slots_for_writers(void)
{
	PapplyWorkerCounts running = papply_pool_count_workers();

	return max_worker_processes - running.others -
		Max(papply_reserved_worker_processes, running.of_queries + lacking_apply_workers());
}

/*** start ***/

/* Has the process ended, or never begun? */
static bool
is_stopped(int writer)
{
	pid_t		pid;

	return watched[writer].handle == NULL ||
		GetBackgroundWorkerPid(watched[writer].handle, &pid) == BGWH_STOPPED;
}

/* Start a writer that has been claimed. */
static bool
start_writer(int writer)
{
	PapplyWriterSlot *writer_slot = &papply_pool->writers[writer];
	BackgroundWorker worker;
	MemoryContext old_context;
	bool		is_registered;

	Assert(writer_slot->state == PAPPLY_WRITER_STARTING && writer_slot->proc == NULL);
	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_notify_pid = MyProcPid;
	worker.bgw_main_arg = papply_pool_writer_argument(writer);
	strlcpy(worker.bgw_library_name, PAPPLY_NAME, sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "papply_writer_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name),
			 PAPPLY_WRITER_TYPE " %u:%d", papply_pool->subid, writer + 1);
	strlcpy(worker.bgw_type, PAPPLY_WRITER_TYPE, sizeof(worker.bgw_type));
	memcpy(worker.bgw_extra, &papply_pool->generation, sizeof(papply_pool->generation));

	old_context = MemoryContextSwitchTo(TopMemoryContext);
	if (watched[writer].handle != NULL)
		pfree(watched[writer].handle);
	watched[writer].handle = NULL;
	is_registered = RegisterDynamicBackgroundWorker(&worker, &watched[writer].handle);
	MemoryContextSwitchTo(old_context);
	if (!is_registered)
		writer_slot->state = PAPPLY_WRITER_NONE;	/* try again as soon as
													 * there is a slot */
	return is_registered;
}

void
papply_writers_lack_queue(void)
{
	control.lacked_queue = true;
}

/*
 * Start missing writers, and return the number of running ones.  A writer that
 * could not start is not tried again at once, because each attempt logs a
 * message.
 */
static int
fill_up(int wanted)
{
	bool		may_retry = papply_clock_is_due(&control.retried_at, papply_clock_now(),
												RETRY_INTERVAL_MS);
	bool		may_register = true;
	int			max_writers = slots_for_writers();
	int			running = 0;

	for (int i = 0; i < wanted; i++)
	{
		PapplyWriterState state = papply_pool->writers[i].state;

		if (!is_stopped(i))
			running++;
		else if (may_register && (state == PAPPLY_WRITER_NONE || may_retry) &&
				 state != PAPPLY_WRITER_EXITED)
		{
			may_register = papply_pool_claim_writer(i, max_writers) && start_writer(i);
			running += may_register ? 1 : 0;
		}
	}
	return running;
}

/* Have all configured writers begun to work?  They may exit again later. */
static bool
is_complete(void)
{
	for (int i = 0; i < control.configured; i++)
		if (papply_pool->writers[i].proc == NULL)
			return false;
	return true;
}

/* Report that writers are missing, once until all are running. */
static void
report_missing(int running, int wanted)
{
	if (running >= wanted || control.has_warned)
		return;
	control.has_warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start all writers of subscription \"%s\"", MySubscription->name),
			 errdetail_plural("%d of %d writer is running.",
							  "%d of %d writers are running.",
							  running, running, wanted),
			 errhint("You might need to increase \"%s\".", "max_worker_processes")));
}

/* Report that all writers are running again. */
static void
report_recovery(void)
{
	if ((!control.has_warned && !control.lacked_queue) || !is_complete())
		return;
	control.has_warned = control.lacked_queue = false;
	ereport(LOG,
			(errmsg("parallel apply of subscription \"%s\" has recovered", MySubscription->name),
			 errdetail("All %d writers are running.", control.configured)));
}

bool
papply_writers_may_start(int wanted)
{
	bool		is_room = papply_pool_has_room(slots_for_writers());

	papply_pool_note_short(!is_room);
	if (!is_room)
		report_missing(0, wanted);
	return is_room;
}

/*** target number ***/

static void
set_wanted(int wanted)
{
	uint64		before;

	Assert(wanted >= 0 && wanted <= control.configured);
	before = pg_atomic_exchange_u64(&papply_pool->wanted_writers, wanted);

	for (uint64 i = wanted; i < before; i++)
		papply_pool_wake(i);
	for (uint64 i = before; i < wanted; i++)
		watched[i].active_at = papply_clock_now();
}

int
papply_writers_set(int wanted)
{
	control.configured = wanted;
	set_wanted(wanted);
	return papply_writers_check();
}

int
papply_writers_wanted(void)
{
	return pg_atomic_read_u64(&papply_pool->wanted_writers);
}

/*
 * Retire the last writers if they have been idle for a long time, or if another
 * subscription needs their slots.
 */
static void
retire_unused(void)
{
	int			wanted = papply_writers_wanted();
	int64		now = papply_clock_now();
	int			idle_ms = papply_writer_idle_timeout;
	int			needed = 0;

	if (papply_pool_is_other_short(OTHER_LACKS_MS))
		idle_ms = Min(idle_ms, GIVE_WAY_MS);
	for (int i = 0; i < wanted; i++)
	{
		PapplyWriterSlot *writer_slot = &papply_pool->writers[i];
		uint64		transactions = writer_slot->counters.transactions;

		if (writer_slot->first_seqno != PAPPLY_NO_SEQNO ||
			transactions != watched[i].transactions)
			watched[i].active_at = now;
		watched[i].transactions = transactions;
		if (!papply_clock_has_passed(watched[i].active_at, now, idle_ms))
			needed = i + 1;
	}
	needed = papply_idle_writers_per_subscription < 0 ? wanted :
		Max(needed, Max(1, papply_idle_writers_per_subscription));

	/* the writer of a streamed transaction needs another one alongside */
	if (papply_in_progress_count() > 0)
		needed = Max(needed, papply_in_progress_count() + 1);
	if (needed < wanted && papply_queue_backlog() == 0)
		set_wanted(needed);
}

/* Includes those that are about to exit, and may be claiming something. */
int
papply_writers_running(void)
{
	int			running = 0;

	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		running += is_stopped(i) ? 0 : 1;
	return running;
}

int
papply_writers_surplus(void)
{
	int			exiting = Max(0, papply_writers_running() - papply_writers_wanted());

	return Max(0, papply_pool_surplus(slots_for_writers()) - exiting);
}

/* Retire the last writers if other workers use the reserve of slots. */
static void
restore_reserve(void)
{
	int			surplus = papply_writers_surplus();

	if (surplus == 0)
		return;
	ereport(LOG,
			(errmsg_plural("%d writer of subscription \"%s\" exits",
						   "%d writers of subscription \"%s\" exit",
						   surplus, surplus, MySubscription->name),
			 errdetail("Other workers use the slots that \"%s\" reserves.",
					   PAPPLY_NAME ".reserved_worker_processes")));
	set_wanted(Max(0, Min(papply_writers_running(), papply_writers_wanted()) - surplus));
	control.lacked_at = papply_clock_now();
}

bool
papply_writers_add(void)
{
	int			wanted = papply_writers_wanted();
	bool		is_room;

	if (wanted >= control.configured && !control.are_missing)
		return false;
	is_room = papply_pool_has_room(slots_for_writers());
	papply_pool_note_short(!is_room);
	if (!is_room)
		return false;
	set_wanted(Min(control.configured, Max(1, 2 * wanted)));
	(void) fill_up(papply_writers_wanted());
	return true;
}

long
papply_writers_adapt(bool is_behind)
{
	long		patience_ms = papply_awake_adjust(is_behind);
	int64		now;

	if ((papply_writers_wanted() >= control.configured && !control.are_missing) ||
		!papply_awake_is_short())
	{
		control.short_since = 0;
		return patience_ms;
	}
	now = papply_clock_now();
	if (papply_clock_has_lasted(&control.short_since, now, SHORT_MS))
	{
		control.short_since = 0;
		if (!papply_writers_add())
			control.lacked_at = now;
	}
	return SHORT_MS;
}

int
papply_writers_check(void)
{
	int			needed;
	int			running;

	retire_unused();
	restore_reserve();
	needed = papply_writers_wanted();
	running = fill_up(needed);
	if (papply_clock_is_within(control.lacked_at, LACK_MS))
		needed = control.configured;
	control.are_missing = running < needed;
	report_recovery();
	report_missing(running, needed);
	return papply_writers_running();
}

bool
papply_writers_are_missing(void)
{
	return control.are_missing;
}

/*** end ***/

void
papply_writers_end(bool must_hurry)
{
	pg_atomic_write_u64(&papply_pool->wanted_writers, 0);
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		if (watched[i].handle == NULL)
			continue;
		papply_pool_wake(i);
		if (must_hurry || papply_pool->writers[i].state == PAPPLY_WRITER_STARTING)
			TerminateBackgroundWorker(watched[i].handle);
	}
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		if (watched[i].handle == NULL)
			continue;
		(void) WaitForBackgroundWorkerShutdown(watched[i].handle);
		pfree(watched[i].handle);
		watched[i].handle = NULL;
	}
}
