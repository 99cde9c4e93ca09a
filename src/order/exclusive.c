/*-------------------------------------------------------------------------
 * exclusive.c
 *	  Nothing younger is applied while a transaction is applied exclusively.
 *
 * Runs in writers and in the receiver.
 *
 * User code may notice the locks of younger transactions; with serial apply,
 * none of these would have begun.  So a transaction that runs such code is
 * applied exclusively.  The same is true of one that has failed twice and is
 * left to the core apply loop, whose error must not be caused by what younger
 * transactions hold.  Examples are a row that a trigger locks with NOWAIT, a
 * full lock table, a lock that is not granted within lock_timeout, and a
 * deadlock whose victim is the core apply loop.  The oldest transaction also
 * stops all others if it waits for a lock of a younger one that sleeps in the
 * lock manager and cannot check this itself (blockers.c).
 *
 * Two numbers say which transactions must not hold locks now.  They cannot be
 * one: the first is that of the newest transaction, the second that of the
 * oldest, and what is between them is applied.
 *
 * - announced: the receiver has put an exclusive transaction into the queue.
 *   Younger ones of the queue depend on it, so they wait by themselves.
 *   Streamed ones that have no number yet must not be applied until it has
 *   committed.
 * - in force: the oldest transaction needs this, and it was not known when
 *   younger ones began.  All of these must not be applied until it has
 *   committed.
 *
 * A process that sets a number signals the writers that apply what it
 * forbids, which cancels what they wait for.  They roll back, and begin again
 * when they may.  The process that must apply its transaction exclusively
 * enters when none is left.  No younger one can commit meanwhile, because
 * commits are in order.  The one before it has committed, but may not have
 * released its locks yet, as it would have with serial apply; it enters after
 * that, too.
 *
 * A single transaction is rolled back if it waits for a lock that the
 * receiver's session keeps, or if a local session waits for it before its turn
 * (both in blockers.c).
 *
 * Locking: none.  A writer stores what it applies before it reads the two
 * numbers.  The process that sets one stores it before it reads what the
 * writers apply.  Each has a full barrier between the two steps.  The process
 * that enters has not announced its transaction itself, but has read in the
 * queue that it is exclusive, which the receiver has stored after announcing
 * it; so it has a barrier there, too.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <signal.h>

#include "miscadmin.h"

#include "commit_order.h"
#include "exclusive.h"
#include "pool.h"
#include "queue.h"

/* The transaction that this process has entered with, and the pool. */
static uint64 entered_seqno = PAPPLY_NO_SEQNO;
static uint32 entered_generation = 0;

static volatile bool has_canceled = false;

bool
papply_exclusive_applies_younger(const PapplyWriterSlot *writer_slot, uint64 seqno)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &writer_slot->applied_first)) > seqno;
}

/* It is the oldest transaction then. */
bool
papply_exclusive_is_in_force(void)
{
	uint64		in_force = pg_atomic_read_u64(&papply_pool->exclusive.in_force_seqno);

	return in_force > papply_pool_committed();
}

/*** set a number ***/

static void
signal_writer(const PapplyWriterSlot *writer_slot)
{
	pid_t		pid = writer_slot->pid;

	if (pid != 0 && pid != MyProcPid)
		(void) kill(pid, SIGUSR2);
}

/* Interrupt the writers that apply something younger than seqno. */
static void
signal_younger(uint64 seqno)
{
	pg_memory_barrier();		/* pairs with papply_exclusive_begin_range() */
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (papply_exclusive_applies_younger(&papply_pool->writers[i], seqno))
			signal_writer(&papply_pool->writers[i]);
}

void
papply_exclusive_announce(uint64 seqno)
{
	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	Assert(seqno >= pg_atomic_read_u64(&papply_pool->exclusive.announced_seqno));
	if (pg_atomic_read_u64(&papply_pool->exclusive.announced_seqno) == seqno)
		return;
	pg_atomic_write_u64(&papply_pool->exclusive.announced_seqno, seqno);
	signal_younger(PAPPLY_SEQNO_OPEN - 1);
}

void
papply_exclusive_put_in_force(uint64 seqno)
{
	uint64		old = pg_atomic_read_u64(&papply_pool->exclusive.in_force_seqno);

	Assert(seqno != PAPPLY_NO_SEQNO && seqno <= papply_pool_committed() + 1);
	while (old < seqno &&
		   !pg_atomic_compare_exchange_u64(&papply_pool->exclusive.in_force_seqno, &old, seqno))
		;
	signal_younger(seqno);
}

void
papply_exclusive_roll_back(PapplyWriterSlot *writer_slot, uint64 first)
{
	Assert(writer_slot->pid != MyProcPid);
	pg_atomic_write_u64(&writer_slot->unwanted_first, first);
	pg_memory_barrier();		/* before the signal */
	signal_writer(writer_slot);
}

/*** the older transaction ***/

/*
 * Do only streamed ones have to roll back, because the others wait by
 * themselves?  These may have opened tables before they waited, so they roll
 * back as well for a transaction that a writer gave up.
 */
static bool
is_announced(uint64 seqno)
{
	Assert(!papply_queue_is_exclusive(seqno) ||
		   pg_atomic_read_u64(&papply_pool->exclusive.announced_seqno) >= seqno);
	return papply_queue_is_exclusive(seqno) &&
		papply_queue_applier(seqno) != PAPPLY_BY_LEADER_EXCLUSIVE;
}

/*
 * Does a writer still apply what must roll back for seqno, or does it still hold the locks
 * of what it has committed before?
 */
static bool
has_others(uint64 seqno)
{
	uint64		allowed = is_announced(seqno) ? PAPPLY_SEQNO_OPEN - 1 : seqno;

	pg_memory_barrier();		/* see the head of this file */
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		uint64		first = pg_atomic_read_u64(&papply_pool->writers[i].applied_first);

		if (first > allowed || (first != PAPPLY_NO_SEQNO && first < seqno))
			return true;
	}
	return false;
}

bool
papply_exclusive_is_any_applied(void)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (pg_atomic_read_u64(&papply_pool->writers[i].applied_first) != PAPPLY_NO_SEQNO)
			return true;
	return false;
}

bool
papply_exclusive_must_await_locks(void)
{
	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	if (!papply_exclusive_is_any_applied())
		return false;
	papply_exclusive_put_in_force(papply_pool_committed() + 1); /* see is_awaited() */
	return papply_exclusive_is_any_applied();
}

bool
papply_exclusive_has_entered(uint64 seqno)
{
	return entered_seqno == seqno && entered_generation == papply_pool->generation;
}

bool
papply_exclusive_waits(uint64 seqno)
{
	return (is_announced(seqno) || papply_exclusive_is_in_force()) && has_others(seqno);
}

bool
papply_exclusive_enter(uint64 seqno)
{
	Assert(seqno == papply_pool_committed() + 1);
	if (papply_exclusive_has_entered(seqno))
		return true;
	if (!is_announced(seqno) && !papply_exclusive_is_in_force())
		papply_exclusive_put_in_force(seqno);
	if (has_others(seqno))
		return false;
	entered_seqno = seqno;
	entered_generation = papply_pool->generation;
	return true;
}

void
papply_exclusive_wait(void)
{
	uint64		seqno = papply_pool_committed() + 1;
	int			sleeps = 0;

	if (papply_pool_is_private())
		return;
	Assert(pg_atomic_read_u64(&papply_pool_my_writer_slot()->applied_first) == seqno);
	while (!papply_exclusive_enter(seqno))
		papply_commit_order_sleep(PAPPLY_WRITER_WAIT_TURN, &sleeps);
	if (sleeps > 0)
		papply_pool_set_state(PAPPLY_WRITER_APPLYING);
}

/*** younger transactions ***/

bool
papply_exclusive_forbids(uint64 first)
{
	uint64		announced = pg_atomic_read_u64(&papply_pool->exclusive.announced_seqno);
	uint64		in_force = pg_atomic_read_u64(&papply_pool->exclusive.in_force_seqno);
	uint64		committed = papply_pool_committed();

	return (in_force > committed && first > in_force) ||
		(announced > committed && first == PAPPLY_SEQNO_OPEN);
}

static bool
must_roll_back(uint64 streamed)
{
	PapplyWriterSlot *writer_slot = papply_pool_my_writer_slot();
	uint64		first = pg_atomic_read_u64(&writer_slot->applied_first);

	if (first == PAPPLY_NO_SEQNO)
		return false;
	if (first == PAPPLY_SEQNO_OPEN)
		first = streamed;
	return papply_exclusive_forbids(first) ||
		pg_atomic_read_u64(&writer_slot->unwanted_first) == first;
}

void
papply_exclusive_begin_range(uint64 first)
{
	PapplyWriterSlot *writer_slot = papply_pool_my_writer_slot();

	Assert(first != PAPPLY_NO_SEQNO);
	Assert(pg_atomic_read_u64(&writer_slot->applied_first) == PAPPLY_NO_SEQNO);
	pg_atomic_write_u64(&writer_slot->unwanted_first, PAPPLY_NO_SEQNO);
	pg_atomic_write_u64(&writer_slot->applied_first, first);
	pg_memory_barrier();		/* see the head of this file */
}

/*
 * May the process that applies the oldest transaction wait for the end of a range that
 * begins with first?
 */
static bool
is_awaited(uint64 first, uint64 oldest)
{
	return papply_exclusive_is_in_force() ||
		(pg_atomic_read_u64(&papply_pool->exclusive.announced_seqno) >= oldest &&
		 (first == PAPPLY_SEQNO_OPEN || papply_queue_is_exclusive(oldest)));
}

/* Wake the process that applies the oldest transaction. */
static void
wake_oldest(uint64 oldest)
{
	papply_pool_wake(PAPPLY_WAITER_RECEIVER);
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (pg_atomic_read_u64(&papply_pool->writers[i].applied_first) == oldest)
			papply_pool_wake(i);
}

void
papply_exclusive_end_range(void)
{
	PapplyWriterSlot *writer_slot = papply_pool_my_writer_slot();
	uint64		first = pg_atomic_read_u64(&writer_slot->applied_first);
	uint64		oldest;

	pg_atomic_write_u64(&writer_slot->applied_first, PAPPLY_NO_SEQNO);
	pg_memory_barrier();		/* the woken process reads it */
	oldest = papply_pool_committed() + 1;
	if (is_awaited(first, oldest))
		wake_oldest(oldest);
	if (has_canceled)
		QueryCancelPending = false; /* discard the interrupt of the signal */
	has_canceled = false;
}

void
papply_exclusive_check(uint64 streamed)
{
	if (must_roll_back(streamed))
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_COMMIT_ORDER_ABORT),
				 errmsg("remote transaction is rolled back so that others can continue")));
}

bool
papply_exclusive_has_canceled(void)
{
	return has_canceled;
}

void
papply_exclusive_handle_signal(uint64 streamed)
{
	if (!must_roll_back(streamed))
		return;
	has_canceled = true;
	papply_pool_cancel();
}
