/*-------------------------------------------------------------------------
 * retreat.c
 *	  Roll back younger transactions, to let an older one continue alone.
 *
 * Runs in writers and in the receiver.
 *
 * Usually the younger transaction finds that the oldest one waits for it, and
 * rolls back (blockers.c).  It cannot do that while it sleeps in the lock
 * manager itself.  Besides, a transaction that failed twice is left to the
 * core apply loop, whose error must not be caused by what younger transactions
 * hold.  Examples are a row that a trigger locks with NOWAIT, a full lock
 * table, a lock that is not granted within lock_timeout, and a deadlock whose
 * victim is the core apply loop.  With serial apply no younger transaction
 * would have begun.
 *
 * The same is true of user code, which may notice locks.  Usually ordinary
 * transactions wait before they begin (apply_mode.c), and streamed ones that
 * are applied in progress retreat.  If the receiver did not know of the code
 * when it queued the transaction, because a trigger was created later,
 * ordinary transactions have to retreat as well.
 *
 * A single transaction is recalled if it waits for a lock that the receiver's
 * session keeps (blockers.c, session_state.c), or if a local session waits for
 * it before its turn (blockers.c).
 *
 * The number of the older transaction is stored in the pool, and the writers
 * that apply younger ones get a signal, which cancels what they wait for.
 * They roll back, and nothing younger begins until the older one has
 * committed.  No younger transaction can be committing meanwhile, because
 * commits are in order.
 *
 * Locking: none.  A writer stores what it applies before it reads the number.
 * papply_retreat_begin() stores the number before it reads what the writers
 * apply.  Each has a full barrier between the two steps.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/latch.h"

#include "commit_order.h"
#include "in_progress.h"
#include "owner.h"
#include "pool.h"
#include "queue.h"
#include "retreat.h"

/*
 * Time for the processes that get a lock when a deadlock is resolved to take
 * it.
 */
#define DEADLOCK_MS 100

static volatile bool has_canceled = false;

bool
papply_retreat_applies_younger(const PapplyWriterSlot *writer_slot, uint64 seqno)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &writer_slot->applied_first)) > seqno;
}

void
papply_retreat_begin(uint64 seqno)
{
	uint64		old = pg_atomic_read_u64(&papply_pool->exclusive.in_force_seqno);

	Assert(seqno != PAPPLY_NO_SEQNO && seqno != PAPPLY_SEQNO_OPEN);
	while (old < seqno &&
		   !pg_atomic_compare_exchange_u64(&papply_pool->exclusive.in_force_seqno, &old, seqno))
		;
	pg_memory_barrier();		/* see the head of this file */
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PapplyWriterSlot *writer_slot = &papply_pool->writers[i];
		pid_t		pid = writer_slot->pid;

		if (pid != 0 && pid != MyProcPid && papply_retreat_applies_younger(writer_slot, seqno))
			(void) kill(pid, SIGUSR2);
	}
}

void
papply_retreat_recall(PapplyWriterSlot *writer_slot, uint64 first)
{
	pid_t		pid = writer_slot->pid;

	pg_atomic_write_u64(&writer_slot->recalled_first, first);
	pg_memory_barrier();		/* before the signal */
	if (pid != 0)
		(void) kill(pid, SIGUSR2);
}

bool
papply_retreat_is_under_way(uint64 seqno)
{
	Assert(seqno == papply_pool_committed() + 1);
	if (pg_atomic_read_u64(&papply_pool->exclusive.in_force_seqno) != seqno)
		return false;
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (papply_retreat_applies_younger(&papply_pool->writers[i], seqno))
			return true;
	return false;
}

/*** writers ***/

bool
papply_retreat_concerns(uint64 first)
{
	return papply_pool_has_retreat() &&
		first > pg_atomic_read_u64(&papply_pool->exclusive.in_force_seqno);
}

/*
 * Must this writer roll back?  A transaction that is applied in progress has a
 * number once it has ended.
 */
static bool
must_retreat(void)
{
	PapplyWriterSlot *writer_slot = papply_pool_my_writer_slot();
	uint64		first = pg_atomic_read_u64(&writer_slot->applied_first);

	if (first == PAPPLY_NO_SEQNO)
		return false;
	if (first == PAPPLY_SEQNO_OPEN)
		first = papply_in_progress_number();
	return papply_retreat_concerns(first) ||
		pg_atomic_read_u64(&writer_slot->recalled_first) == first ||
		(first == PAPPLY_SEQNO_OPEN && papply_in_progress_is_suspended());
}

void
papply_retreat_enter(uint64 first)
{
	Assert(first != PAPPLY_NO_SEQNO);
	Assert(pg_atomic_read_u64(&papply_pool_my_writer_slot()->applied_first) == PAPPLY_NO_SEQNO);
	pg_atomic_write_u64(&papply_pool_my_writer_slot()->recalled_first, PAPPLY_NO_SEQNO);
	pg_atomic_write_u64(&papply_pool_my_writer_slot()->applied_first, first);
	pg_memory_barrier();		/* see the head of this file */
	papply_retreat_check();
}

/* Wake the process that started the retreat, which may wait for its end. */
static void
wake_older(void)
{
	uint64		seqno = pg_atomic_read_u64(&papply_pool->exclusive.in_force_seqno);
	PapplyWriterSlot *writer_slot = papply_owner_writer(papply_pool, seqno);

	papply_pool_wake(PAPPLY_WAITER_RECEIVER);
	if (writer_slot != NULL)
		papply_pool_wake(writer_slot - papply_pool->writers);
}

void
papply_retreat_leave(void)
{
	pg_atomic_write_u64(&papply_pool_my_writer_slot()->applied_first, PAPPLY_NO_SEQNO);
	pg_memory_barrier();		/* the woken process reads it */
	if (papply_pool_has_retreat())
		wake_older();
	if (has_canceled)
		QueryCancelPending = false; /* discard the interrupt of the signal */
	has_canceled = false;
}

void
papply_retreat_check(void)
{
	if (must_retreat())
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_COMMIT_ORDER_ABORT),
				 errmsg("remote transaction is rolled back so that others can continue")));
}

void
papply_retreat_wait_until_exclusive(void)
{
	uint64		seqno = papply_pool_committed() + 1;
	int			sleeps = 0;

	if (papply_pool_is_private() ||
		(papply_queue_is_exclusive(seqno) && papply_in_progress_count() == 0))
		return;
	Assert(pg_atomic_read_u64(&papply_pool_my_writer_slot()->applied_first) == seqno);
	if (!papply_retreat_is_under_way(seqno))
		papply_retreat_begin(seqno);
	while (papply_retreat_is_under_way(seqno))
		papply_commit_order_sleep(PAPPLY_WRITER_WAIT_TURN, &sleeps);
	if (sleeps > 0)
		papply_pool_set_state(PAPPLY_WRITER_APPLYING);
}

bool
papply_retreat_has_canceled(void)
{
	return has_canceled;
}

void
papply_retreat_handle_signal(void)
{
	if (!must_retreat())
		return;
	has_canceled = true;
	papply_pool_cancel();
}

void
papply_retreat_let_others_continue(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 DEADLOCK_MS, papply_compat_wait_event(PAPPLY_WAIT_TURN));
	ResetLatch(MyLatch);
}
