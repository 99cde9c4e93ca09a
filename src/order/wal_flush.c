/*-------------------------------------------------------------------------
 * wal_flush.c
 *	  Flush local commits, by a writer that can be spared.
 *
 * Runs in writers, at the request of the receiver.
 *
 * Writers commit asynchronously.  A session on the publisher may wait until
 * the commit is flushed here, which takes milliseconds on many devices.  If
 * the receiver flushed, it would receive nothing meanwhile, and sessions that
 * wait only for the commit to be applied or received would wait for the flush,
 * too.  The walwriter would delay a flush by wal_writer_delay.  So a writer
 * that can be spared flushes, because nothing is left to claim, or because
 * idle writers can claim what arrives meanwhile.  During a backlog no writer
 * can be spared, and it is not necessary to flush each commit at once.
 *
 * One writer flushes at a time, for all commits.  Other ones would only queue
 * up behind it instead of applying.  It repeats this while there are new
 * commits.
 *
 * Locking: none.  Only the process in its turn stores wanted_lsn, or the
 * receiver while nothing is in flight.  A writer that finds flusher set gives
 * up, after it has stored its own commit.  The flusher resets flusher before it
 * reads wanted_lsn again.  Each has a full barrier between the two steps,
 * so no commit is forgotten.  If a writer gives up because is_held has just
 * been set, the receiver ensures the flush (due_flush.c).
 *
 * The only wait here is for I/O.  XLogFlush() fails only by PANIC and does not
 * process interrupts, so flusher is always reset.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"

#include "claim.h"
#include "pool.h"
#include "queue.h"
#include "wal_flush.h"

/*
 * With this many transactions there is a backlog, rather than sessions of the
 * publisher that wait for their commits.
 */
#define MANY_TRANSACTIONS 64

bool
papply_wal_flush_is_wanted(void)
{
	XLogRecPtr	lsn = pg_atomic_read_u64(&papply_pool->flush.wanted_lsn);

	return lsn != InvalidXLogRecPtr && !pg_atomic_read_u32(&papply_pool->flush.is_held) &&
		lsn > GetFlushRecPtr(NULL);
}

void
papply_wal_flush_hold(bool holds)
{
	if (pg_atomic_read_u32(&papply_pool->flush.is_held) != holds)
		pg_atomic_write_u32(&papply_pool->flush.is_held, holds);
}

/*
 * Can this writer be spared, because nothing is left to apply or others can do
 * that?
 */
static bool
is_spare(void)
{
	uint64		backlog = papply_queue_backlog();

	return backlog == 0 || papply_awake_is_surplus() ||
		(backlog < MANY_TRANSACTIONS && papply_awake_has_substitute());
}

void
papply_wal_flush_if_spare(void)
{
	while (is_spare() && papply_wal_flush_is_wanted() && papply_pool->is_open &&
		   !papply_pool_is_retired() && !ConfigReloadPending)
	{
		uint32		expected = 0;

		if (!pg_atomic_compare_exchange_u32(&papply_pool->flush.flusher, &expected,
											papply_pool_waiter + 1))
			return;
		papply_awake_wake_for_work();
		XLogFlush(pg_atomic_read_u64(&papply_pool->flush.wanted_lsn));
		Assert(pg_atomic_read_u32(&papply_pool->flush.flusher) == papply_pool_waiter + 1);
		pg_atomic_write_u32(&papply_pool->flush.flusher, 0);
		pg_memory_barrier();	/* see the head of this file */
		papply_pool_wake(PAPPLY_WAITER_RECEIVER);
		CHECK_FOR_INTERRUPTS(); /* there may always be a new commit */
	}
}

bool
papply_wal_flush_is_active(void)
{
	return pg_atomic_read_u32(&papply_pool->flush.flusher) != 0;
}

bool
papply_wal_flush_wake_writer(void)
{
	return papply_wal_flush_is_active() || papply_awake_wake_spare();
}
