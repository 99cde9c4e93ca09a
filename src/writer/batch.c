/*-------------------------------------------------------------------------
 * batch.c
 *	  How many transactions a writer claims at a time, and when it leaves them to
 *	  others.
 *
 * Runs in a writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/commit_ts.h"
#include "storage/latch.h"
#include "miscadmin.h"

#include "batch.h"
#include "decoding.h"
#include "queue.h"
#include "read_ahead.h"

/*
 * A batch saves commits, tens of microseconds each, but its changes come one
 * after the other.  So it takes no more transactions than are applied in this
 * time: where rows have to be read from storage, saving commits does not pay.
 */
#define BATCH_US 1500

/*
 * While pages are read ahead there is little to wait for in a transaction, however
 * long it takes because others have the processors.
 */
#define MIN_AHEAD_BATCH 8

/* Transactions up to this are left to others for so long; see papply_batch_leave_to_others(). */
#define SHORT_US 100
#define LEAVE_MS 1

/*
 * Moving average: time to apply a transaction, without waits for others.  A writer that
 * knows nothing yet takes one at a time: of many new ones, each would have to wait for the
 * batch of the one before it, as new as itself.
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
	 * rows would get the time of another transaction's commit, here or where
	 * they go
	 */
	if (track_commit_timestamp || papply_decoding_is_possible())
		return 1;
	return Min(papply_max_batch_transactions,
			   Max(min, (int) (BATCH_US / Max(transaction_us, 1.0))));
}

/*
 * What comes next would only wait for another writer, which will be free to
 * claim it, too, in a moment if transactions are short: then one process less
 * does more.  Not for longer, since that one may be blocked.
 */
void
papply_batch_leave_to_others(void)
{
	if (transaction_us > SHORT_US || !papply_queue_next_must_wait())
		return;
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 LEAVE_MS, papply_compat_wait_event(PAPPLY_WAIT_WORK));
	ResetLatch(MyLatch);
}
