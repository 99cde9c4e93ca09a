/*-------------------------------------------------------------------------
 * selftest_exclusive.c
 *	  Test which transactions an exclusive one forbids, for sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *
 * The backend acts as the receiver and as each writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"

#include "commit_order.h"
#include "exclusive.h"
#include "pool.h"
#include "queue.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_exclusive);

static void
publish(uint64 seqno, bool is_exclusive)
{
	uint64		given;

	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	EXPECT(papply_queue_begin(1, 1, &given));
	EXPECT(given == seqno);
	if (is_exclusive)
	{
		papply_exclusive_announce(seqno);
		papply_queue_set_exclusivity(seqno, PAPPLY_EXCLUSIVE);
	}
	papply_queue_append(PAPPLY_ENTRY_MESSAGE, "x", 1, 0, PAPPLY_NO_SEQNO);
	papply_queue_end(1);
}

static void
begin(int writer, uint64 first)
{
	papply_pool_waiter = writer;
	papply_exclusive_begin_range(first);
}

static void
end(int writer)
{
	papply_pool_waiter = writer;
	papply_exclusive_end_range();
}

static void
commit(int writer, uint64 seqno)
{
	papply_pool_waiter = writer;
	papply_commit_order_advance(seqno, seqno, InvalidXLogRecPtr);
	papply_exclusive_end_range();
}

/* Younger ones of the queue wait for 2 by themselves. */
static void
check_announced(void)
{
	publish(1, false);
	publish(2, true);
	publish(3, false);
	EXPECT(!papply_exclusive_is_in_force());
	EXPECT(!papply_exclusive_forbids(3) && papply_exclusive_forbids(PAPPLY_SEQNO_OPEN));
	begin(1, 3);
	begin(0, 1);
	commit(0, 1);
	begin(0, 2);
	EXPECT(papply_exclusive_enter(2) && papply_exclusive_has_entered(2));
	EXPECT(!papply_exclusive_is_in_force());
	EXPECT(papply_exclusive_forbids(PAPPLY_SEQNO_OPEN));
	commit(0, 2);
	EXPECT(!papply_exclusive_forbids(PAPPLY_SEQNO_OPEN));
	commit(1, 3);
}

/* A streamed one has begun before, and its end wakes the writer of the exclusive one. */
static void
check_streamed(void)
{
	begin(2, PAPPLY_SEQNO_OPEN);
	publish(4, true);
	begin(0, 4);
	EXPECT(papply_exclusive_waits(4) && !papply_exclusive_enter(4));
	EXPECT(!papply_exclusive_is_in_force() && !papply_exclusive_has_entered(4));
	papply_pool->receiver_proc = NULL;
	papply_pool->writers[0].proc = MyProc;
	ResetLatch(MyLatch);
	end(2);
	EXPECT(MyLatch->is_set);
	papply_pool->writers[0].proc = NULL;
	papply_pool->receiver_proc = MyProc;
	EXPECT(!papply_exclusive_waits(4) && papply_exclusive_enter(4));
	commit(0, 4);
}

/* Nothing was announced, so the younger one has to roll back. */
static void
check_in_force(void)
{
	publish(5, false);
	publish(6, false);
	begin(1, 6);
	begin(0, 5);
	EXPECT(!papply_exclusive_waits(5) && !papply_exclusive_enter(5) && papply_exclusive_waits(5));
	EXPECT(papply_exclusive_is_in_force());
	EXPECT(!papply_exclusive_forbids(5) && papply_exclusive_forbids(6) &&
		   papply_exclusive_forbids(PAPPLY_SEQNO_OPEN));
	end(1);
	EXPECT(papply_exclusive_enter(5));
	commit(0, 5);
	EXPECT(!papply_exclusive_is_in_force() && !papply_exclusive_forbids(6));
}

/* Younger ones may hold locks when a writer has given an exclusive one up. */
static void
check_given_up(void)
{
	publish(7, true);
	publish(8, false);
	begin(1, 8);
	begin(0, 6);
	commit(0, 6);
	papply_queue_leave_to_leader(7, PAPPLY_BY_LEADER_EXCLUSIVE, PAPPLY_COUNT_FALLBACK_FAILURE);
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
	EXPECT(!papply_exclusive_enter(7) && papply_exclusive_is_in_force());
	end(1);
	EXPECT(papply_exclusive_enter(7));
}

/* Transactions have the same numbers as in the pool before. */
static void
drive(void *arg)
{
	for (uint64 seqno = 1; seqno <= 8; seqno++)
		EXPECT(!papply_exclusive_has_entered(seqno));
	check_announced();
	check_streamed();
	check_in_force();
	check_given_up();
}

Datum
papply_selftest_exclusive(PG_FUNCTION_ARGS)
{
	papply_selftest_with_queue(64, drive, NULL);
	papply_selftest_with_queue(64, drive, NULL);
	PG_RETURN_VOID();
}
