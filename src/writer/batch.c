/*-------------------------------------------------------------------------
 * batch.c
 *	  How many transactions a writer claims at a time, and when it leaves them
 *	  to others.
 *
 * Runs in a writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/commit_ts.h"
#include "storage/latch.h"
#include "miscadmin.h"

#include "batch.h"
#include "claim.h"
#include "decoding.h"
#include "queue.h"
#include "read_ahead.h"
#include "test_hooks.h"

/*
 * A batch saves commits, tens of microseconds each, but its changes are
 * applied one after the other.  So a batch holds no more transactions than can
 * be applied in this time.  Where rows have to be read from storage, saving
 * commits does not pay.
 */
#define BATCH_US 1500

/*
 * While pages are read ahead, a transaction waits little for storage, even if
 * it takes long because other processes use the CPUs.
 */
#define MIN_AHEAD_BATCH 8

/*
 * See papply_batch_leave_to_others(): transactions up to SHORT_US long are
 * left to other writers, for LEAVE_MS.
 */
#define SHORT_US 100
#define LEAVE_MS 1

/*
 * Moving average of the time to apply a transaction, without waits for other
 * writers.  A new writer claims one transaction at a time.  If many new
 * writers claimed batches, each would have to wait for the whole batch of the
 * one before it.
 */
static double transaction_us = BATCH_US;

void
papply_batch_note_time(double us)
{
	transaction_us += (us - transaction_us) / 8;
}

int
papply_batch_max(void)
{
	int			min = papply_read_ahead_is_on() ? MIN_AHEAD_BATCH : 1;

	/*
	 * Rows would get the commit time of another transaction, either on this
	 * server or where its WAL is decoded.
	 */
	if (track_commit_timestamp || papply_decoding_is_possible())
		return 1;
	if (papply_test_is_fast())
		return papply_max_batch_transactions;
	return Min(papply_max_batch_transactions,
			   Max(min, (int) (BATCH_US / Max(transaction_us, 1.0))));
}

/*
 * Sleep for LEAVE_MS if the next transaction depends on one that another
 * writer applies.  If transactions are short, that writer will soon be free to
 * claim it too, and one process fewer gets more done: with ten hot rows and a
 * publisher that coalesces messages, 13 % more transactions per second
 * (bench/catchup hot --coalesce --writers "4 8").  Do not sleep longer,
 * because that writer may be blocked.
 */
void
papply_batch_leave_to_others(void)
{
	if (transaction_us > SHORT_US || !papply_claim_next_must_wait())
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 LEAVE_MS, papply_compat_wait_event(PAPPLY_WAIT_WORK));
	ResetLatch(MyLatch);
}
