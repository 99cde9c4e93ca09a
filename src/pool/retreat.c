/*-------------------------------------------------------------------------
 * retreat.c
 *	  Younger transactions are rolled back, to let an older one go on alone.
 *
 * Runs in writers and in the receiver.
 *
 * As a rule it is the younger one that finds that the oldest waits for it (blockers.c).
 * It cannot if it sleeps in the lock manager itself.  And what fails twice is left to
 * the native loop, whose error must not come from what younger ones hold: a row
 * that a trigger wants with NOWAIT, all places of the lock table, a lock that is not
 * had within lock_timeout, a deadlock of which the native loop becomes the victim.
 * With serial apply nothing younger has been begun.  Nor has anything when code of
 * the user is run, which may notice locks: as a rule ordinary transactions wait for that
 * (table_class.c), and streamed ones that are applied early retreat.  If the
 * receiver did not know of that code when it put the transaction into the queue,
 * because a trigger has been created since, ordinary ones have to retreat as well.
 *
 * A single transaction is recalled if it waits for a lock that the receiver's session keeps
 * (blockers.c, session_locks.c), or if a local session waits for it before its turn
 * (local_waiters.c).
 *
 * So the number of the older one is put into the pool, and those who apply younger
 * ones are sent a signal, which cancels what they wait for.  They roll back, and
 * nothing younger is begun until it is committed.  Nobody who is younger can be
 * committing meanwhile: commits are in order.
 *
 * Locking: none.  A writer says what it applies before it looks at the number;
 * papply_retreat_begin() stores the number before it looks at what they apply; each
 * has a full barrier between the two.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/latch.h"

#include "commit_order.h"
#include "early.h"
#include "queue.h"
#include "retreat.h"

/* The processes that get a lock when a deadlock is resolved have so long to take it. */
#define DEADLOCK_MS 100

static volatile bool has_cancelled = false;

/* The last attempt of this writer has ended in a deadlock with others. */
static bool was_deadlock = false;

bool
papply_retreat_applies_younger(const PapplyWriterSlot *slot, uint64 seqno)
{
	return pg_atomic_read_u64(unconstify(pg_atomic_uint64 *, &slot->applied_first)) > seqno;
}

void
papply_retreat_begin(uint64 seqno)
{
	uint64		old = pg_atomic_read_u64(&papply_pool->retreat_seqno);

	while (old < seqno &&
		   !pg_atomic_compare_exchange_u64(&papply_pool->retreat_seqno, &old, seqno))
		;
	pg_memory_barrier();		/* see above */
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
	{
		PapplyWriterSlot *slot = &papply_pool->writers[i];
		pid_t		pid = slot->pid;

		if (pid != 0 && pid != MyProcPid && papply_retreat_applies_younger(slot, seqno))
			(void) kill(pid, SIGUSR2);
	}
}

void
papply_retreat_recall(PapplyWriterSlot *slot, uint64 first)
{
	pid_t		pid = slot->pid;

	pg_atomic_write_u64(&slot->recalled_first, first);
	pg_memory_barrier();		/* before the signal */
	if (pid != 0)
		(void) kill(pid, SIGUSR2);
}

bool
papply_retreat_is_on(void)
{
	return pg_atomic_read_u64(&papply_pool->retreat_seqno) > papply_commit_order_committed();
}

bool
papply_retreat_is_complete(uint64 seqno)
{
	if (pg_atomic_read_u64(&papply_pool->retreat_seqno) != seqno)
		papply_retreat_begin(seqno);
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		if (papply_retreat_applies_younger(&papply_pool->writers[i], seqno))
			return false;
	return true;
}

/*** writers ***/

bool
papply_retreat_concerns(uint64 first)
{
	return papply_retreat_is_on() &&
		first > pg_atomic_read_u64(&papply_pool->retreat_seqno);
}

/* What is applied early has a number when it has ended. */
static bool
must_retreat(void)
{
	PapplyWriterSlot *slot = papply_pool_my_slot();
	uint64		first = pg_atomic_read_u64(&slot->applied_first);

	if (first == PAPPLY_NO_SEQNO)
		return false;
	if (first == PAPPLY_SEQNO_OPEN)
		first = papply_early_number();
	return papply_retreat_concerns(first) ||
		pg_atomic_read_u64(&slot->recalled_first) == first ||
		(first == PAPPLY_SEQNO_OPEN && papply_early_is_kept_out());
}

void
papply_retreat_enter(uint64 first)
{
	pg_atomic_write_u64(&papply_pool_my_slot()->recalled_first, PAPPLY_NO_SEQNO);
	pg_atomic_write_u64(&papply_pool_my_slot()->applied_first, first);
	pg_memory_barrier();		/* see above */
	papply_retreat_check();
}

/* Who has begun it may wait for its end. */
static void
wake_older(void)
{
	uint64		seqno = pg_atomic_read_u64(&papply_pool->retreat_seqno);
	PapplyWriterSlot *slot = papply_pool_writer_of(papply_pool, seqno);

	papply_pool_wake(PAPPLY_WAITER_RECEIVER);
	if (slot != NULL)
		papply_pool_wake(slot - papply_pool->writers);
}

void
papply_retreat_leave(void)
{
	pg_atomic_write_u64(&papply_pool_my_slot()->applied_first, PAPPLY_NO_SEQNO);
	pg_memory_barrier();		/* who is woken looks at it */
	if (papply_retreat_is_on())
		wake_older();
	if (has_cancelled)
		QueryCancelPending = false; /* it comes no more */
	has_cancelled = false;
}

void
papply_retreat_check(void)
{
	if (must_retreat())
		ereport(ERROR,
				(errcode(PAPPLY_ERRCODE_OLDER_WINS),
				 errmsg("remote transaction is rolled back to let others go on")));
}

void
papply_retreat_wait_until_alone(void)
{
	uint64		seqno = papply_commit_order_committed() + 1;
	int			sleeps = 0;

	if (papply_queue_is_serial(seqno) && papply_early_count() == 0)
		return;
	while (!papply_retreat_is_complete(seqno))
		papply_commit_order_sleep(PAPPLY_WRITER_WAIT_TURN, &sleeps);
	if (sleeps > 0)
		papply_pool_set_state(PAPPLY_WRITER_APPLYING);
}

bool
papply_retreat_has_cancelled(void)
{
	return has_cancelled;
}

void
papply_retreat_handle_signal(void)
{
	if (!must_retreat())
		return;
	has_cancelled = true;
	papply_pool_cancel();
}

void
papply_retreat_note_error(int sqlerrcode)
{
	was_deadlock = sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED;
}

void
papply_retreat_let_others_go_on(void)
{
	if (!was_deadlock)
		return;
	was_deadlock = false;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 DEADLOCK_MS, papply_compat_wait_event(PAPPLY_WAIT_TURN));
	ResetLatch(MyLatch);
}
