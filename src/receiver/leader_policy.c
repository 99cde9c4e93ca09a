/*-------------------------------------------------------------------------
 * leader_policy.c
 *	  Choose transactions that the receiver applies itself.
 *
 * Runs in the receiver, while there is a pool.
 *
 * A leader transaction is received while nothing else is in flight, by a
 * receiver that keeps up: there was nothing to read a moment ago.  If a writer
 * applied it, that would take two switches between processes, which take
 * longer than applying a small transaction.  So it is left to the core apply
 * loop.  A publisher's session that waits for each of its commits waits no
 * longer than with PostgreSQL's own apply.
 *
 * The core apply loop gets it directly, message by message: it applies while
 * the walsender still sends, as it would without a pool, and no code of the
 * queue is executed, which would have to be read from memory where transactions
 * come slowly.  With ten per second, the median until a commit is visible is
 * that of PostgreSQL's own apply (bench/latency --rate 10, six rounds: 0.96 to
 * 1.05 times as long); through the queue it was some percent longer.
 *
 * That a transaction will be small can be told from its WAL: BEGIN has the
 * position of the first change that is sent, and that of the commit.  Where
 * this does not tell, because other sessions have written between the two, or
 * where a table is known whose rows the core apply loop may have to find
 * without an index, or while there are transactions in the spool, the whole
 * transaction is put into the queue first, and applied from there.
 *
 * As with PostgreSQL's own apply, nothing else is received in the meantime.
 * Three rules keep that loss small:
 * - Transactions that arrive after there has been something to read for
 *   KEEPS_UP_MS go to writers, until these have applied all of them, and so do
 *   transactions that the publisher sends as long after their commit.  Without
 *   this, a backlog of TPC-B takes 15 % longer (bench/catchup tpcb).
 * - Writers apply a transaction that is published before its end because it is
 *   large, and one that changes a table whose rows the core apply loop may have
 *   to find without an index (dispatch.c).  The first small one of a connection
 *   is an exception: the definition of the table comes after BEGIN.
 * - After a transaction that took longer than SLOW_MS, because it waited for
 *   storage, a lock, or the flush of its commit, or is expensive, writers apply
 *   all transactions for PAUSE_FACTOR times as long, so that at most about a
 *   tenth of the time is lost, and for at most MAX_PAUSE_MS.  A time in which
 *   this process wanted a processor and had none does not count: on busy
 *   processors that is frequent, and work of several processes takes more of
 *   them.  Without the pause, the median until a commit is visible is 0.28 ms
 *   instead of 0.20, and the 99th percentile 3.7 instead of 2.4, where each
 *   commit waits 2 ms for its flush (bench/latency --rate 300 --flush-delay 2000
 *   --with "synchronous_commit = on").
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "clock.h"
#include "leader_policy.h"
#include "test_hooks.h"

/*
 * Time for some hundred small transactions.  On busy processors, a receiver
 * that has had none for some milliseconds has this much to read now and then.
 * Waking writers for that would cost more than it gains.
 */
#define KEEPS_UP_MS 30

/* The WAL of some dozens of small changes. */
#define SMALL_WAL_BYTES (16 * 1024)

#define SLOW_MS 2
#define PAUSE_FACTOR 10
#define MAX_PAUSE_MS 1000

typedef struct LeaderTimes
{
	int64		idle_at;
	int64		began_at;
	PapplyProcessUse used_before;	/* at began_at */
	uint64		reading_sleeps; /* since then */
	int64		ended_at;		/* when the last one was applied */
	int			pause_ms;		/* after ended_at; 0: it was not slow */
} LeaderTimes;

static LeaderTimes times;

int64
papply_leader_policy_idle(void)
{
	times.idle_at = papply_clock_now();
	return times.idle_at;
}

bool
papply_leader_policy_may_begin(int64 age_us)
{
	return papply_leader_participation &&
		(age_us <= KEEPS_UP_MS * INT64CONST(1000) || papply_test_is_fast()) &&
		(times.pause_ms == 0 ||
		 papply_clock_has_passed(times.ended_at, papply_clock_now(), times.pause_ms));
}

bool
papply_leader_policy_keeps_up(void)
{
	if (papply_test_is_fast())
		return true;
	return !papply_clock_has_passed(times.idle_at, papply_clock_now(), KEEPS_UP_MS);
}

bool
papply_leader_policy_may_start(XLogRecPtr first_lsn, XLogRecPtr final_lsn)
{
	return first_lsn <= final_lsn && final_lsn - first_lsn <= SMALL_WAL_BYTES &&
		papply_leader_policy_keeps_up();
}

void
papply_leader_policy_begin(void)
{
	times.began_at = papply_clock_now();
	times.used_before = papply_process_use();
	times.reading_sleeps = 0;
}

void
papply_leader_policy_slept(void)
{
	times.reading_sleeps++;
}

int
papply_leader_policy_pause_ms(int64 elapsed_us, int64 cpu_us, bool has_waited)
{
	int64		took_ms = (has_waited ? elapsed_us : Min(cpu_us, elapsed_us)) / 1000;

	return took_ms >= SLOW_MS ? Min(MAX_PAUSE_MS, PAUSE_FACTOR * took_ms) : 0;
}

void
papply_leader_policy_end(void)
{
	int64		now = papply_clock_now();
	int64		elapsed_us = now - times.began_at;

	times.ended_at = now;
	times.pause_ms = 0;
	if (elapsed_us >= SLOW_MS * 1000 && !papply_test_is_fast())
	{
		PapplyProcessUse used = papply_process_use();

		times.pause_ms =
			papply_leader_policy_pause_ms(elapsed_us, used.cpu_us - times.used_before.cpu_us,
										  used.sleeps - times.used_before.sleeps > times.reading_sleeps);
	}
}
