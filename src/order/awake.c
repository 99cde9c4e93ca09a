/*-------------------------------------------------------------------------
 * awake.c
 *	  The limit of writers that are awake at the same time.
 *
 * Runs in writers.  The receiver sets the limit.
 *
 * A writer without work sleeps, and is woken when there is work.  But more
 * writers than processors make apply faster only if writers wait for something
 * other than a processor.  Otherwise they take processor time from the
 * publisher's walsender and the receiver, and each batch becomes smaller.  So
 * there is a limit while the subscription is behind, and the writers beyond it
 * sleep although there is work.  It is the number of processors, and there is
 * no limit if
 * - writers read ahead, because storage is slow;
 * - there was a stall a moment ago: nothing was committed for some milliseconds
 *   although there was work.  Then the awake writers probably wait for locks,
 *   and others may use the time;
 * - the subscription is not behind: then a session may be waiting for a
 *   transaction to be applied.
 *
 * Progress never depends on a sleeping writer.  Claims are made in commit
 * order, so the oldest transaction belongs to a writer that is awake.
 *
 * Locking: none.  A writer sets its bit in idle_writers before it checks again
 * whether there is a transaction to claim and enough writers are awake for it.
 * A process that publishes something reads the bits after that.  Each has a
 * full barrier between the two steps.  So either the writer is woken, or it
 * sees the work, or enough others are awake.  Each of these checks for work
 * before it sleeps, and wakes another writer when it exits.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <unistd.h>

#include "port/pg_bitutils.h"
#include "postmaster/interrupt.h"
#include "storage/latch.h"

#include "claim.h"
#include "clock.h"
#include "pool.h"
#include "queue.h"
#include "test_hooks.h"

/* After this time with work and without a commit there is no limit. */
#define STALL_MS 10

/* There is a limit again after this time without a stall. */
#define CALM_MS 100

/* A backlog of this many transactions wakes a sleeping writer. */
#define WAKE_BACKLOG 8

/* State of the receiver. */
typedef struct Observed
{
	int			processors;
	uint64		last_committed;
	int64		waiting_since;	/* since when there is a backlog and nothing
								 * is committed, or 0 */
	int64		stalled_at;		/* when there was last a stall, or 0 */
} Observed;

static Observed observed;

/*** any process ***/

/*
 * Count the writers that use a processor.  A writer that flushes waits for a
 * device, and one that applies a streamed transaction usually waits for the
 * publisher.
 */
static int
count_awake(void)
{
	uint64		awake = pg_atomic_read_u64(&papply_pool->awake.present_writers);

	awake &= ~pg_atomic_read_u64(&papply_pool->awake.idle_writers);
	awake &= ~pg_atomic_read_u64(&papply_pool->in_progress.writers);
	return pg_popcount64(awake) - (pg_atomic_read_u32(&papply_pool->flush.flusher) != 0 ? 1 : 0);
}

static int
limit(void)
{
	return pg_atomic_read_u32(&papply_pool->awake.limit);
}

bool
papply_awake_wake_spare(void)
{
	uint64		idle = pg_atomic_read_u64(&papply_pool->awake.idle_writers);

	while (idle != 0)
	{
		int			writer = pg_rightmost_one_pos64(idle);
		uint64		bit = UINT64CONST(1) << writer;

		if (pg_atomic_fetch_and_u64(&papply_pool->awake.idle_writers, ~bit) & bit)
		{
			papply_pool_wake(writer);
			return true;
		}
		idle = pg_atomic_read_u64(&papply_pool->awake.idle_writers);
	}
	return false;
}

bool
papply_awake_wake_one(void)
{
	return count_awake() < limit() && papply_awake_wake_spare();
}

void
papply_awake_wake_for_work(void)
{
	if (papply_queue_backlog() > 0)
		(void) papply_awake_wake_one();
}

void
papply_awake_publish_open(void)
{
	papply_queue_publish_open();
	papply_awake_wake_for_work();
}

/*
 * Expect half of the writers with work to wait, which lets others become
 * awake.
 */
int
papply_awake_sharing(void)
{
	return Max(1, Min(2 * limit(), (int) pg_atomic_read_u64(&papply_pool->wanted_writers)));
}

/*** writers ***/

void
papply_awake_begin(void)
{
	Assert((pg_atomic_read_u64(&papply_pool->awake.present_writers) & papply_pool_my_bit()) == 0);
	pg_atomic_fetch_or_u64(&papply_pool->awake.present_writers, papply_pool_my_bit());
}

void
papply_awake_end(void)
{
	papply_awake_set_ahead(false);
	pg_atomic_fetch_and_u64(&papply_pool->awake.present_writers, ~papply_pool_my_bit());
	pg_atomic_fetch_and_u64(&papply_pool->awake.idle_writers, ~papply_pool_my_bit());

	/* another writer may have fallen asleep because this one was awake */
	papply_awake_wake_for_work();
}

bool
papply_awake_is_surplus(void)
{
	return count_awake() > limit();
}

bool
papply_awake_has_substitute(void)
{
	return pg_atomic_read_u64(&papply_pool->awake.idle_writers) != 0;
}

bool
papply_awake_sleep(long timeout_ms, bool (*has_other_work) (void))
{
	int			events = WL_LATCH_SET;

	Assert((pg_atomic_read_u64(&papply_pool->awake.idle_writers) & papply_pool_my_bit()) == 0);
	pg_atomic_fetch_or_u64(&papply_pool->awake.idle_writers, papply_pool_my_bit()); /* full barrier */
	if ((papply_queue_backlog() == 0 || count_awake() >= limit()) &&
		!has_other_work() && papply_pool_may_sleep() &&
		!papply_pool_is_retired() && !ConfigReloadPending)
	{
		papply_pool_set_state(PAPPLY_WRITER_IDLE);
		events = WaitLatch(MyLatch,
						   WL_LATCH_SET | WL_EXIT_ON_PM_DEATH |
						   (timeout_ms >= 0 ? WL_TIMEOUT : 0),
						   papply_test_wait_ms(timeout_ms), papply_compat_wait_event(PAPPLY_WAIT_WORK));
		ResetLatch(MyLatch);
	}
	pg_atomic_fetch_and_u64(&papply_pool->awake.idle_writers, ~papply_pool_my_bit());
	return (events & WL_LATCH_SET) != 0;
}

void
papply_awake_set_ahead(bool reads_ahead)
{
	pg_atomic_uint64 *writers = &papply_pool->awake.ahead_writers;
	bool		is_set = (pg_atomic_read_u64(writers) & papply_pool_my_bit()) != 0;

	if (reads_ahead && !is_set)
		pg_atomic_fetch_or_u64(writers, papply_pool_my_bit());
	if (!reads_ahead && is_set)
		pg_atomic_fetch_and_u64(writers, ~papply_pool_my_bit());
}

/*** receiver ***/

bool
papply_awake_reads_ahead(void)
{
	return pg_atomic_read_u64(&papply_pool->awake.ahead_writers) != 0;
}

void
papply_awake_wake_for_backlog(void)
{
	if (papply_queue_backlog() >= WAKE_BACKLOG)
		(void) papply_awake_wake_one();
}

/* Has there been a stall within the last CALM_MS? */
static bool
has_stalled(void)
{
	uint64		committed = papply_pool_committed();

	if (committed != observed.last_committed || papply_queue_backlog() == 0)
	{
		observed.last_committed = committed;
		observed.waiting_since = 0;
	}
	else if (papply_clock_has_lasted(&observed.waiting_since, papply_clock_now(), STALL_MS))
		observed.stalled_at = papply_clock_now();
	return papply_clock_is_within(observed.stalled_at, CALM_MS);
}

static void
set_limit(int new_limit)
{
	Assert(new_limit > 0 && new_limit <= PAPPLY_MAX_WRITERS);
	if (new_limit == limit())
		return;
	pg_atomic_write_u32(&papply_pool->awake.limit, new_limit);
	pg_memory_barrier();		/* pairs with papply_awake_sleep() */
	papply_awake_wake_for_work();
}

void
papply_awake_reset(void)
{
	long		online = sysconf(_SC_NPROCESSORS_ONLN);

	observed.processors = Max(2, Min(PAPPLY_MAX_WRITERS, online));
	observed.last_committed = 0;
	observed.waiting_since = observed.stalled_at = 0;
	set_limit(observed.processors);
}

bool
papply_awake_is_short(void)
{
	return papply_queue_backlog() > 0 && count_awake() < limit() &&
		pg_atomic_read_u64(&papply_pool->awake.idle_writers) == 0;
}

long
papply_awake_adjust(bool is_behind)
{
	bool		has_limit;

	has_limit = !has_stalled() && is_behind && !papply_awake_reads_ahead();
	set_limit(has_limit ? observed.processors : PAPPLY_MAX_WRITERS);
	return has_limit && papply_queue_backlog() > 0 && count_awake() >= limit() &&
		pg_atomic_read_u64(&papply_pool->awake.idle_writers) != 0 ? STALL_MS : -1;
}
