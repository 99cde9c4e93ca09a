/*-------------------------------------------------------------------------
 * wal_flush.c
 *	  Local commits reach the disk, by a writer that can be spared.
 *
 * Runs in writers; the receiver asks for it.
 *
 * Writers commit asynchronously.  Somebody may wait on the publisher until the
 * commit is flushed here, which takes milliseconds on many devices.  If the
 * receiver did it, nothing would be received meanwhile, and those who wait only
 * until it is applied or received would wait, too.  The walwriter lets commits
 * wait for wal_writer_delay.  So a writer does it that is free: because nothing
 * is left to claim, or because others are idle, who claim what comes meanwhile.
 * With a backlog nobody is free, and nobody needs each commit flushed at once.
 *
 * One writer flushes at a time, for all commits; the others would only queue up
 * behind it, and not apply.  It goes on as long as there are new ones.
 *
 * Locking: none.  wanted_flush_lsn is stored by the process in its turn only.
 * A writer that finds flusher taken goes away after its own commit was stored;
 * the flusher gives it back before it looks at wanted_flush_lsn again; each has
 * a full barrier between the two, so no commit is forgotten.  The receiver looks after
 * a writer that goes away because holds_flush was set a moment ago (due_flush.c).
 *
 * Nobody waits here but for the device.  XLogFlush() does not fail but by
 * PANIC, and does not process interrupts, so flusher is always given back.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"

#include "awake.h"
#include "queue.h"
#include "wal_flush.h"

/*
 * So many are no sessions of the publisher that wait for their commits, but what
 * has piled up.
 */
#define MANY_TRANSACTIONS 64

void
papply_wal_flush_want(XLogRecPtr local_end_lsn)
{
	if (local_end_lsn > pg_atomic_read_u64(&papply_pool->wanted_flush_lsn))
		pg_atomic_write_u64(&papply_pool->wanted_flush_lsn, local_end_lsn);
}

bool
papply_wal_flush_is_wanted(void)
{
	XLogRecPtr	lsn = pg_atomic_read_u64(&papply_pool->wanted_flush_lsn);

	return lsn != InvalidXLogRecPtr && !pg_atomic_read_u32(&papply_pool->holds_flush) &&
		lsn > GetFlushRecPtr(NULL);
}

void
papply_wal_flush_hold(bool holds)
{
	if (pg_atomic_read_u32(&papply_pool->holds_flush) != holds)
		pg_atomic_write_u32(&papply_pool->holds_flush, holds);
}

/* Nothing is left to apply, or there are others for it. */
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

		if (!pg_atomic_compare_exchange_u32(&papply_pool->flusher, &expected,
											papply_pool_waiter + 1))
			return;
		papply_queue_wake_writer();
		XLogFlush(pg_atomic_read_u64(&papply_pool->wanted_flush_lsn));
		pg_atomic_write_u32(&papply_pool->flusher, 0);
		pg_memory_barrier();	/* see above */
		papply_pool_wake(PAPPLY_WAITER_RECEIVER);
		CHECK_FOR_INTERRUPTS(); /* commits may follow each other for ever */
	}
}

bool
papply_wal_flush_is_active(void)
{
	return pg_atomic_read_u32(&papply_pool->flusher) != 0;
}

bool
papply_wal_flush_wake_writer(void)
{
	return papply_wal_flush_is_active() || papply_awake_wake_spare();
}
