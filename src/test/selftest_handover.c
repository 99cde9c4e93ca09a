/*-------------------------------------------------------------------------
 * selftest_handover.c
 *	  Pass the turn to commit to and fro between two sessions, for bench/handover.
 *
 * Runs in two users' backends, and only in libraries made with SELFTEST=1.
 *
 * One session makes a pool and is its first writer, the other one is the second
 * writer.  They commit transactions that do not exist in turn, by the functions
 * that writers use.  What a hand-over costs both of them together is the
 * processor time that a session needs to wait for its turn and to pass it on.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "clock.h"
#include "commit_order.h"
#include "pool.h"
#include "queue.h"
#include "slots.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_handover);

typedef struct Handover
{
	uint64		number;			/* of the writer: 0 or 1 */
	int			turns;			/* of each writer */
	int			work_us;		/* between getting the turn and passing it on */
	int64	   *costs_ns;		/* of each turn */
	uint64		sleeps;			/* while it waited for its turns */
} Handover;

static int64
processor_ns(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (int64) now.tv_sec * 1000000000 + now.tv_nsec;
}

static void
sleep_a_moment(void)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1,
					 PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static void
work(int us)
{
	int64		end = papply_clock_now() + us;

	while (papply_clock_now() < end)
		;
}

static void
take_turns(Handover *handover)
{
	uint64		sleeps = papply_selftest_sleeps();

	for (int i = 0; i < handover->turns; i++)
	{
		uint64		seqno = 2 * i + handover->number + 1;
		int64		began_ns = processor_ns();
		int64		got_ns;
		int64		passes_ns;

		papply_commit_order_enter(seqno);
		got_ns = processor_ns();
		work(handover->work_us);
		passes_ns = processor_ns();
		papply_commit_order_advance(seqno, seqno, InvalidXLogRecPtr);
		handover->costs_ns[i] = got_ns - began_ns + processor_ns() - passes_ns;
	}
	handover->sleeps = papply_selftest_sleeps() - sleeps;
}

/* The second writer leaves the pool before the first one, which has made it. */
static void
drive_first(void *arg)
{
	PapplyWriterSlot *writers = papply_pool->writers;

	papply_pool_waiter = 0;
	writers[0].proc = MyProc;
	writers[1].state = PAPPLY_WRITER_STARTING;
	while (writers[1].state == PAPPLY_WRITER_STARTING)
		sleep_a_moment();
	take_turns(arg);
	while (writers[1].proc != NULL)
		sleep_a_moment();
	writers[0].proc = NULL;
}

/* Attach to the pool of the other session as its second writer, if it is there. */
static bool
attach_second(void)
{
	PapplySubscriptionSlot *slot;

	papply_slots_lock(LW_SHARED);
	slot = papply_slots_find(PAPPLY_SELFTEST_SUBID);
	papply_slots_unlock();
	return slot != NULL && slot->pool.writers[1].state == PAPPLY_WRITER_STARTING &&
		papply_pool_attach_writer(Int32GetDatum(papply_slots_number(slot) * PAPPLY_MAX_WRITERS + 1),
								  slot->pool.generation);
}

static void
drive_second(Handover *handover)
{
	while (!attach_second())
		sleep_a_moment();
	papply_queue_attach();
	papply_pool_set_state(PAPPLY_WRITER_APPLYING);
	take_turns(handover);
	papply_queue_detach();
	papply_pool_my_writer_slot()->proc = NULL;
	papply_pool = NULL;
	papply_subscription_slot = NULL;
	papply_pool_waiter = PAPPLY_WAITER_RECEIVER;
}

static int
compare_costs(const void *a, const void *b)
{
	int64		left = *(const int64 *) a;
	int64		right = *(const int64 *) b;

	return (left > right) - (left < right);
}

/*
 * selftest_handover(number, turns, work_us, watch_us): of all turns of this
 * writer, the median and the mean of the processor time of a hand-over, in
 * nanoseconds, and how often it has slept.  It watches for its turn for watch_us
 * before it sleeps; 0: as usual.
 */
Datum
papply_selftest_handover(PG_FUNCTION_ARGS)
{
	int			turns = PG_GETARG_INT32(1);
	Handover	handover = {
		.number = PG_GETARG_INT32(0),
		.turns = turns,
		.work_us = PG_GETARG_INT32(2),
		.costs_ns = palloc(turns * sizeof(int64)),
	};
	int64		sum = 0;
	Datum		result[3];

	if (turns <= 0)
		elog(ERROR, "number of turns is not positive: %d", turns);
	papply_selftest_watch_us = PG_GETARG_INT32(3);
	if (handover.number == 0)
		papply_selftest_with_queue(64, drive_first, &handover);
	else
		drive_second(&handover);
	papply_selftest_watch_us = 0;

	for (int i = 0; i < turns; i++)
		sum += handover.costs_ns[i];
	qsort(handover.costs_ns, turns, sizeof(int64), compare_costs);
	result[0] = Int64GetDatum(handover.costs_ns[turns / 2]);
	result[1] = Int64GetDatum(sum / turns);
	result[2] = Int64GetDatum(handover.sleeps);
	PG_RETURN_ARRAYTYPE_P(construct_array(result, 3, INT8OID, sizeof(int64), FLOAT8PASSBYVAL,
										  TYPALIGN_DOUBLE));
}
