/*-------------------------------------------------------------------------
 * selftest_awake.c
 *	  Test how many writers are awake, and how many exit, for sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *
 * The pool has no processes, so the backend sets the bits of writers itself, and
 * sees in them which were woken.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"

#include "claim.h"
#include "commit_order.h"
#include "in_progress.h"
#include "pool.h"
#include "queue.h"
#include "slots.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_awake);

/* Longer than commits may stay away, and than it takes until that is forgotten. */
#define STALL_MS 20
#define CALM_MS 120

static void
let_pass(long ms)
{
	(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, ms, PG_WAIT_EXTENSION);
}

static void
publish(int transactions)
{
	uint64		seqno;

	for (int i = 0; i < transactions; i++)
	{
		EXPECT(papply_queue_begin(1, 1, &seqno));
		papply_queue_append(PAPPLY_ENTRY_MESSAGE, "C", 1, 0, PAPPLY_NO_SEQNO);
		papply_queue_end(1);
	}
}

/* Writers 0..awake-1 are awake, and those up to all-1 sleep. */
static void
set_writers(int awake, int all)
{
	uint64		present = (UINT64CONST(1) << all) - 1;

	pg_atomic_write_u64(&papply_pool->awake.present_writers, present);
	pg_atomic_write_u64(&papply_pool->awake.idle_writers,
						present & ~((UINT64CONST(1) << awake) - 1));
	pg_atomic_write_u64(&papply_pool->wanted_writers, all);
}

static void
set_limit(int limit)
{
	pg_atomic_write_u32(&papply_pool->awake.limit, limit);
}

static int
get_limit(void)
{
	return pg_atomic_read_u32(&papply_pool->awake.limit);
}

static bool
is_idle(int writer)
{
	return (pg_atomic_read_u64(&papply_pool->awake.idle_writers) & (UINT64CONST(1) << writer)) != 0;
}

/* The first that sleeps is woken, up to the limit; one that flushes does not count. */
static void
check_wake(void)
{
	set_writers(1, 4);
	set_limit(2);
	EXPECT(papply_awake_wake_one());
	EXPECT(!is_idle(1) && is_idle(2) && is_idle(3));
	EXPECT(!papply_awake_wake_one());
	EXPECT(!papply_awake_is_surplus());
	EXPECT(papply_awake_sharing() == 4);

	pg_atomic_write_u32(&papply_pool->flush.flusher, 1);
	EXPECT(papply_awake_wake_one());
	pg_atomic_write_u32(&papply_pool->flush.flusher, 0);
	EXPECT(papply_awake_is_surplus());
	EXPECT(papply_awake_has_substitute());
	EXPECT(papply_awake_wake_spare());
	EXPECT(!papply_awake_has_substitute() && !papply_awake_wake_spare());

	set_limit(1);
	EXPECT(papply_awake_sharing() == 2);
}

/* One more than may be awake does not claim, and does not stay awake for it. */
static void
check_claim(void)
{
	uint64		first;
	uint64		last;

	publish(4);
	set_writers(3, 4);
	set_limit(2);
	papply_pool_waiter = 2;
	ResetLatch(MyLatch);
	EXPECT(!papply_claim(1, &first, &last));
	EXPECT(!papply_awake_sleep(0, papply_in_progress_may_take));
	EXPECT(!is_idle(2));		/* it has not slept, and tries again */

	/* where it is needed it does not sleep at all */
	set_writers(2, 4);
	papply_pool_waiter = 1;
	EXPECT(papply_awake_sleep(0, papply_in_progress_may_take));
	EXPECT(papply_claim(1, &first, &last) && first == 1 && last == 1);
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
}

/* A writer that exits gives its place to another one. */
static void
check_end(void)
{
	set_writers(2, 4);
	set_limit(2);
	papply_awake_wake_for_work();
	EXPECT(is_idle(2) && is_idle(3));
	papply_pool_waiter = 1;
	papply_awake_end();
	EXPECT(!is_idle(2) && is_idle(3));
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
}

/* The limit follows storage.  Nothing is queued, so nothing stalls. */
static void
check_storage(void)
{
	int			processors;

	set_writers(2, 2);
	papply_awake_reset();
	processors = get_limit();
	EXPECT(processors >= 2);

	papply_pool_waiter = 1;
	papply_awake_set_ahead(true);
	EXPECT(papply_awake_adjust(true) == -1);
	EXPECT(get_limit() == PAPPLY_MAX_WRITERS);
	papply_awake_end();
	(void) papply_awake_adjust(true);
	EXPECT(get_limit() == processors);
	(void) papply_awake_adjust(false);
	EXPECT(get_limit() == PAPPLY_MAX_WRITERS);
	(void) papply_awake_adjust(true);
	EXPECT(get_limit() == processors);
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
}

/* Without commits for a while, all may be awake; after commits for a while, fewer again. */
static void
check_stall(void)
{
	int			limit;

	papply_awake_reset();
	limit = get_limit();
	if (limit >= PAPPLY_MAX_WRITERS - 3)
		return;					/* too many processors for any writer to sleep */
	set_writers(limit, limit + 3);
	EXPECT(papply_awake_adjust(true) > 0);
	EXPECT(get_limit() == limit);
	let_pass(STALL_MS);
	EXPECT(papply_awake_adjust(true) == -1);
	EXPECT(get_limit() == PAPPLY_MAX_WRITERS);
	EXPECT(!is_idle(limit) && is_idle(limit + 1));

	/* as long as nothing is committed, it stays so */
	let_pass(CALM_MS);
	EXPECT(papply_awake_adjust(true) == -1);
	EXPECT(get_limit() == PAPPLY_MAX_WRITERS);

	let_pass(CALM_MS);
	papply_commit_order_advance(1, 1, 0);
	EXPECT(papply_awake_adjust(true) > 0);
	EXPECT(get_limit() == limit);
}

/* Another writer helps if all are awake, and more may be. */
static void
check_short(void)
{
	set_limit(2);
	set_writers(1, 1);
	EXPECT(papply_awake_is_short());
	set_writers(2, 2);
	EXPECT(!papply_awake_is_short());
	set_writers(1, 2);
	EXPECT(!papply_awake_is_short());
}

static void
set_running(PapplyPool *pool, int writers)
{
	for (int i = 0; i < PAPPLY_MAX_WRITERS; i++)
		pool->writers[i].state = i < writers ? PAPPLY_WRITER_IDLE : PAPPLY_WRITER_NONE;
}

/* Writers exit in the pools that have most of them, and not more than necessary. */
static void
check_surplus(void)
{
	int			n = 0;
	PapplySubscriptionSlot *slot;
	PapplyPool *other;

	while ((slot = papply_slots_get(n)) == papply_subscription_slot ||
		   (slot != NULL && slot->pool.in_use))
		n++;
	EXPECT(slot != NULL);
	other = &slot->pool;
	other->in_use = true;
	set_running(papply_pool, 4);
	set_running(other, 2);
	EXPECT(papply_pool_surplus(6) == 0 && papply_pool_surplus(5) == 1);
	EXPECT(papply_pool_surplus(4) == 2);

	/* one of two pools with the same number keeps one more */
	EXPECT(papply_pool_surplus(3) == (papply_pool < other ? 2 : 3));
	EXPECT(papply_pool_surplus(1) == (papply_pool < other ? 3 : 4));
	EXPECT(papply_pool_surplus(0) == 4 && papply_pool_surplus(-1) == 4);

	/* one that has fewer keeps them */
	set_running(other, 5);
	EXPECT(papply_pool_surplus(8) == 0);
	set_running(papply_pool, 0);
	set_running(other, 0);
	other->in_use = false;
}

static void
drive_awake(void *model)
{
	check_wake();
	check_storage();
	check_claim();
	check_end();
	check_stall();
	check_short();
	check_surplus();
}

/* selftest_awake(): how many writers are woken, and when more. */
Datum
papply_selftest_awake(PG_FUNCTION_ARGS)
{
	papply_selftest_with_queue(64, drive_awake, NULL);
	PG_RETURN_VOID();
}
