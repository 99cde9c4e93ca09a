/*-------------------------------------------------------------------------
 * commit_order.c
 *	  Commits in the order of sequence numbers, and the waits for it.
 *
 * Runs in writers and, for fallbacks, in the receiver.
 *
 * Everything is based on one number: committed_seqno is N when the
 * transactions 1..N are committed and visible.  A writer's turn has come when
 * committed_seqno is the first number of its range minus one.  A dependency on
 * transaction d is satisfied when committed_seqno is at least d.  The process
 * whose turn it is advances committed_seqno after its commit has become
 * visible, so no process is released too early.
 *
 * A sleeping process stores the number that it waits for in waiting_for[].
 * The process that advances committed_seqno sets the latches of exactly those
 * whose number has been reached.  The sleeper stores its mark and then checks
 * committed_seqno again; papply_commit_order_advance() stores committed_seqno
 * and then reads the marks.  Each has a full barrier between the two steps, so
 * no wakeup is lost.
 *
 * To sleep and to be woken costs both processes more time than most commits
 * take.  So while only the next commit is missing, a process first watches
 * committed_seqno for some microseconds.  How long depends on how often that
 * was enough, as in s_lock.c of the server: where commits wait for a device or
 * for a processor, it is next to nothing.
 *
 * blockers.c handles the deadlocks of which the lock manager sees only one
 * half.
 *
 * In its turn, a writer commits only if the gate of the pool is open.  After
 * closing the gate, the receiver waits for the writers to exit (lifecycle.c).
 * The gate is not a lock, because a commit may wait in the lock manager and
 * must be interruptible there, like a commit of PostgreSQL's own apply worker.
 * (NOTIFY takes a lock at commit, and a session that waits for a standby keeps
 * holding it.)
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/s_lock.h"

#include "clock.h"
#include "commit_order.h"
#include "pool.h"
#include "queue.h"
#include "statistics.h"
#include "test_hooks.h"

/*
 * A sleeping process checks at this interval whether local sessions wait for
 * it (blockers.c).  It searches for a hidden deadlock after the first
 * sleep and after every third one from there, because that search costs more.
 */
#define CHECK_MS 30
#define DEADLOCK_CHECKS 3

/*
 * A process watches committed_seqno for a time between these limits, which
 * grows by a step when the commit came in time, and is halved when it did not.
 * The greater one is about what it costs to sleep and to be woken.
 */
#define WATCH_MIN_US 1
#define WATCH_MAX_US 50
#define WATCH_STEP_US 2

/* What this process checks while it waits, or NULL. */
static const PapplyWaitChecks *checks = NULL;

/* All waits of this process. */
static uint64 slept_us = 0;

/* How long this process watches committed_seqno before it sleeps. */
static int	watch_us = WATCH_MAX_US;

void
papply_commit_order_set_checks(const PapplyWaitChecks *new_checks)
{
	checks = new_checks;
}

uint64
papply_commit_order_slept_us(void)
{
	return slept_us;
}

static void
count_sleep(int cause, bool is_first, int64 begin)
{
	uint64		us = papply_clock_now() - begin;

	slept_us += us;
	papply_statistics_count(PAPPLY_COUNT_WAITS_DEPENDENCY + cause, is_first ? 1 : 0);
	papply_statistics_count(PAPPLY_COUNT_DEPENDENCY_US + cause, us);
}

static void
check_open(void)
{
	if (!papply_pool->is_open)
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_POOL_CLOSED),
				 errmsg("apply worker of this writer has exited")));
}

/*
 * The names and the counters of these waits are in the order of the states.
 */
void
papply_commit_order_sleep(PapplyWriterState state, int *sleeps)
{
	int64		begin = papply_clock_now();
	int			cause = state - PAPPLY_WRITER_WAIT_DEPENDENCY;
	int			rc = 0;

	Assert(state >= PAPPLY_WRITER_WAIT_DEPENDENCY && state <= PAPPLY_WRITER_WAIT_LEADER);
	if (*sleeps == 0)
		papply_pool_set_state(state);
	if (papply_pool_may_sleep())
		rc = WaitLatch(MyLatch,
					   WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   papply_test_wait_ms(CHECK_MS),
					   papply_compat_wait_event(PAPPLY_WAIT_DEPENDENCY + cause));
	count_sleep(cause, *sleeps == 0, begin);
	(*sleeps)++;
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	check_open();
	if (checks != NULL)
		checks->after_sleep();
	if (checks == NULL || !(rc & WL_TIMEOUT))
		return;
	if (*sleeps % DEADLOCK_CHECKS == 1)
		checks->find_deadlock();
	checks->find_local_waiters();
}

/*
 * Watch committed_seqno while seqno is the next number that it will reach.
 * Returns true if it has reached it.
 */
static bool
watch(uint64 seqno)
{
	int64		end = papply_clock_now() + papply_test_watch_us(watch_us);

	while (papply_pool_committed() == seqno - 1)
	{
		if (papply_clock_now() >= end)
		{
			watch_us = Max(watch_us / 2, WATCH_MIN_US);
			return false;
		}
		SPIN_DELAY();
	}
	if (papply_pool_committed() < seqno)
		return false;			/* too far away to watch */
	watch_us = Min(watch_us + WATCH_STEP_US, WATCH_MAX_US);
	return true;
}

void
papply_commit_order_wait(uint64 seqno, PapplyWriterState state)
{
	pg_atomic_uint64 *mark = &papply_pool->order.waiting_for[papply_pool_waiter];
	int			sleeps = 0;

	Assert(papply_pool_waiter != PAPPLY_WAITER_RECEIVER);
	Assert(seqno != PAPPLY_SEQNO_OPEN);
	while (papply_pool_committed() < seqno && !watch(seqno))
	{
		pg_atomic_write_u64(mark, seqno);
		pg_memory_barrier();	/* pairs with papply_commit_order_advance() */
		if (papply_pool_committed() >= seqno)
			break;
		papply_commit_order_sleep(state, &sleeps);
	}
	pg_atomic_write_u64(mark, 0);
	pg_read_barrier();
	papply_pool_set_state(PAPPLY_WRITER_APPLYING);
}

void
papply_commit_order_enter(uint64 first)
{
	Assert(first != PAPPLY_NO_SEQNO);
	papply_commit_order_wait(first - 1, PAPPLY_WRITER_WAIT_TURN);
	Assert(papply_pool_committed() == first - 1);
	check_open();
}

/*
 * Is this transaction published and left to the leader?  Its slot is
 * reused only after its commit, which follows the caller's turn.
 */
static bool
is_by_leader(uint64 seqno)
{
	if (seqno > pg_atomic_read_u64(&papply_pool->queue.published_seqno))
		return false;
	pg_read_barrier();			/* its state was written before */
	return papply_queue_is_by_leader(papply_queue_transaction(seqno));
}

void
papply_commit_order_want_flush(XLogRecPtr local_end_lsn)
{
	if (local_end_lsn > pg_atomic_read_u64(&papply_pool->flush.wanted_lsn))
		pg_atomic_write_u64(&papply_pool->flush.wanted_lsn, local_end_lsn);
}

void
papply_commit_order_advance(uint64 first, uint64 last, XLogRecPtr local_end_lsn)
{
	Assert(papply_pool_committed() == first - 1);
	Assert(first <= last);
	for (uint64 seqno = first; seqno <= last; seqno++)
		papply_queue_transaction(seqno)->local_end_lsn = local_end_lsn;

	papply_commit_order_want_flush(local_end_lsn);
	pg_write_barrier();			/* pairs with papply_queue_oldest_committed() */
	pg_atomic_write_u64(&papply_pool->order.committed_seqno, last);
	pg_memory_barrier();		/* pairs with papply_commit_order_wait() */

	for (int i = 0; i < PAPPLY_WAITERS; i++)
	{
		uint64		wanted = pg_atomic_read_u64(&papply_pool->order.waiting_for[i]);

		if (wanted != 0 && wanted <= last && i != papply_pool_waiter)
			papply_pool_wake(i);
	}
	if (papply_pool_waiter != PAPPLY_WAITER_RECEIVER && is_by_leader(last + 1))
		papply_pool_wake(PAPPLY_WAITER_RECEIVER);
}

void
papply_commit_order_wake_receiver_at(uint64 seqno)
{
	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	pg_atomic_write_u64(&papply_pool->order.waiting_for[PAPPLY_WAITER_RECEIVER], seqno);
	pg_memory_barrier();		/* pairs with papply_commit_order_advance() */
}
