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
 * are woken first (awake.c), so the last ones are idle.
 *
 * Writers leave a reserve of worker slots to other workers of the server
 * (worker_slots.c).  If other workers use it, the last writer of the pool that
 * has most of them exits.  If the server finds no slot all the same, the last
 * writer of each pool exits to free one, and no writer starts for some time.
 *
 * A writer that dies leaves PAPPLY_WRITER_EXITED in its slot.  Transactions
 * that it had claimed may be lost, so the receiver ends, and everything that
 * is not committed is fetched again.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "utils/memutils.h"

#include "awake.h"
#include "clock.h"
#include "early.h"
#include "queue.h"
#include "worker_slots.h"
#include "writer_control.h"

/* How long to wait before trying again to start a writer that could not. */
#define RETRY_INTERVAL_MS 60000

/* Writers come back if they have been missed for this long. */
#define SHORT_MS 20

/* How long a lack of slots is shown after writers were missed last. */
#define LACK_MS 5000

/* What is known of each writer. */
typedef struct Watched
{
	BackgroundWorkerHandle *handle;
	uint64		transactions;	/* at the last check */
	int64		active_at;		/* when it was last seen to be applying
								 * transactions */
} Watched;

static Watched watched[PAPPLY_MAX_WRITERS];

/* Writers that are wanted and cannot be started. */
typedef struct Shortage
{
	bool		has_warned;		/* since the number was set */
	bool		is_degraded;	/* until all writers are running */
	bool		are_missing;	/* is a writer missing that could not start,
								 * or that was retired for the server? */
	int64		short_since;	/* when more writers were first wanted, or 0 */
	int64		lacked_at;		/* when writers were last missed for which
								 * there was no slot, or 0 */
	int64		retried_at;		/* when one was last started that could not */
	uint64		seen_missed;	/* number of times that the server lacked a
								 * slot, at the last check */
} Shortage;

static Shortage shortage;

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
	PapplyWriterSlot *slot = &papply_pool->writers[writer];
	BackgroundWorker worker;
	MemoryContext old_context;
	bool		is_registered;

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
		slot->state = PAPPLY_WRITER_NONE;	/* try again as soon as there is a
											 * slot */
	return is_registered;
}

void
papply_writers_set_degraded(void)
{
	shortage.is_degraded = true;
}

/*
 * Must slots be left to the server?  No writer, of any subscription, takes a
 * slot before the server has tried again.
 */
static bool
leaves_slots_to_server(void)
{
	return papply_clock_is_within(papply_worker_slots_missed_at(),
								  Max(RETRY_INTERVAL_MS, 2 * wal_retrieve_retry_interval));
}

/*
 * Start missing writers, and return the number of running ones.  A writer that
 * could not start is not tried again at once, because each attempt logs a
 * message.
 */
static int
fill_up(int wanted)
{
	bool		may_retry = papply_clock_is_due(&shortage.retried_at, papply_clock_now(),
												RETRY_INTERVAL_MS);
	bool		may_register = !leaves_slots_to_server();
	int			max_writers = papply_worker_slots_for_writers();
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

static int
configured_writers(void)
{
	return pg_atomic_read_u32(&papply_pool->configured_writers);
}

/* Have all configured writers begun to work?  They may exit again later. */
static bool
is_complete(int wanted)
{
	for (int i = 0; i < wanted; i++)
		if (papply_pool->writers[i].proc == NULL)
			return false;
	return wanted == configured_writers();
}

/* Report that writers are missing, once. */
static void
report_missing(int running, int wanted, const char *subname)
{
	if (running >= wanted || shortage.has_warned)
		return;
	shortage.has_warned = shortage.is_degraded = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start all writers of subscription \"%s\"", subname),
			 errdetail_plural("%d of %d writer is running.",
							  "%d of %d writers are running.",
							  running, running, wanted),
			 errhint("You might need to increase \"%s\".", "max_worker_processes")));
}

/* Report that all writers are running again. */
static void
report_recovery(int wanted, const char *subname)
{
	if (!shortage.is_degraded || !is_complete(wanted))
		return;
	shortage.has_warned = shortage.is_degraded = false;
	ereport(LOG,
			(errmsg("parallel apply of subscription \"%s\" has recovered", subname),
			 errdetail("All %d writers are running.", wanted)));
}

bool
papply_writers_may_start(int wanted, const char *subname)
{
	if (!leaves_slots_to_server() &&
		papply_pool_has_room(papply_worker_slots_for_writers()))
		return true;
	report_missing(0, wanted, subname);
	return false;
}

static void
set_wanted(int wanted)
{
	uint64		before = pg_atomic_exchange_u64(&papply_pool->wanted_writers, wanted);

	for (uint64 i = wanted; i < before; i++)
		papply_pool_wake(i);
	for (uint64 i = before; i < wanted; i++)
		watched[i].active_at = papply_clock_now();
}

int
papply_writers_set(int wanted, const char *subname)
{
	pg_atomic_write_u32(&papply_pool->configured_writers, wanted);
	set_wanted(wanted);
	shortage.seen_missed = papply_worker_slots_missed();
	shortage.has_warned = false;
	shortage.lacked_at = 0;
	return papply_writers_check(subname);
}

int
papply_writers_wanted(void)
{
	return pg_atomic_read_u64(&papply_pool->wanted_writers);
}

/* Retire the last writer if it has been idle for a long time. */
static void
retire_unused(void)
{
	int			wanted = papply_writers_wanted();
	int64		now = papply_clock_now();
	int			needed = 0;

	for (int i = 0; i < wanted; i++)
	{
		PapplyWriterSlot *slot = &papply_pool->writers[i];
		uint64		transactions = slot->counters.transactions;

		if (slot->first_seqno != PAPPLY_NO_SEQNO ||
			transactions != watched[i].transactions)
			watched[i].active_at = now;
		watched[i].transactions = transactions;
		if (!papply_clock_has_passed(watched[i].active_at, now, papply_writer_idle_timeout))
			needed = i + 1;
	}
	needed = papply_idle_writers_per_subscription < 0 ? wanted :
		Max(needed, papply_idle_writers_per_subscription);

	/* the writer of a streamed transaction needs another one alongside */
	if (papply_early_count() > 0)
		needed = Max(needed, papply_early_count() + 1);
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

/* Has a worker of the server found no slot since the last check? */
static bool
has_missed(void)
{
	return papply_worker_slots_missed() != shortage.seen_missed;
}

bool
papply_writers_owe_slot(void)
{
	return has_missed() ||
		(papply_writers_running() <= papply_writers_wanted() &&
		 papply_pool_has_surplus(papply_worker_slots_for_writers()));
}

/* Retire the last writer, one per check, to free its slot for the server. */
static void
give_slot_to_server(const char *subname)
{
	bool		is_missed = has_missed();
	int			running;

	if (!papply_writers_owe_slot())
		return;
	shortage.seen_missed = papply_worker_slots_missed();
	running = papply_writers_running();
	if (running == 0 || running > papply_writers_wanted())
		return;
	ereport(LOG,
			(errmsg("a writer of subscription \"%s\" exits", subname),
			 is_missed ?
			 errdetail("An apply or synchronization worker has found no free worker slot.") :
			 errdetail("Other workers use the slots that \"%s\" reserves.",
					   PAPPLY_NAME ".reserved_worker_processes")));
	set_wanted(running - 1);
}

long
papply_writers_adapt(bool is_behind, const char *subname)
{
	long		patience_ms = papply_awake_adjust(is_behind);
	uint32		configured = pg_atomic_read_u32(&papply_pool->configured_writers);
	uint64		wanted = pg_atomic_read_u64(&papply_pool->wanted_writers);
	int64		now;

	if (wanted >= configured || !papply_awake_is_short() || leaves_slots_to_server())
	{
		shortage.short_since = 0;
		return patience_ms;
	}
	now = papply_clock_now();
	if (papply_clock_has_lasted(&shortage.short_since, now, SHORT_MS))
	{
		shortage.short_since = 0;
		if (papply_pool_has_room(papply_worker_slots_for_writers()))
			set_wanted(Min(configured, 2 * wanted));
		else
			shortage.lacked_at = now;
		(void) papply_writers_check(subname);
	}
	return SHORT_MS;
}

static bool
has_lacked_slots(void)
{
	return papply_clock_is_within(shortage.lacked_at, LACK_MS);
}

int
papply_writers_check(const char *subname)
{
	int			wanted;
	int			running;

	retire_unused();
	wanted = papply_writers_wanted();
	give_slot_to_server(subname);
	running = fill_up(papply_writers_wanted());
	if (has_lacked_slots())
		wanted = configured_writers();
	shortage.are_missing = running < wanted || (papply_writers_wanted() < configured_writers() &&
												leaves_slots_to_server());
	report_recovery(wanted, subname);
	report_missing(running, wanted, subname);
	return papply_writers_running();
}

bool
papply_writers_are_missing(void)
{
	return shortage.are_missing;
}

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
