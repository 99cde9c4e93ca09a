/*-------------------------------------------------------------------------
 * account.c
 *	  What a writer does in a local transaction, counted when it is committed.
 *
 * Runs in a writer.
 *
 * There are two sets of counters: those of the writer, since it started
 * (parallel_apply.writers), and those of the subscription, which survive it
 * (statistics.c).  Changes are kept apart until their transaction is committed,
 * so that what was rolled back counts for nothing.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "account.h"
#include "commit_order.h"

PapplyAccount papply_account;

static PapplyWriterCounters *
my_counters(void)
{
	return &papply_pool->writers[papply_pool_waiter].counters;
}

void
papply_account_begin(void)
{
	memset(&papply_account, 0, sizeof(papply_account));
}

void
papply_account_commit(uint64 transactions)
{
	PapplyAccount *account = &papply_account;

	my_counters()->transactions += transactions;
	my_counters()->rows += account->rows;
	papply_statistics_count(PAPPLY_COUNT_TRANSACTIONS, transactions);
	papply_statistics_count(PAPPLY_COUNT_BATCHES, 1);
	papply_statistics_count(PAPPLY_COUNT_INSERTS, account->inserts);
	papply_statistics_count(PAPPLY_COUNT_UPDATES, account->updates);
	papply_statistics_count(PAPPLY_COUNT_DELETES,
							account->rows - account->inserts - account->updates);
	papply_statistics_count(PAPPLY_COUNT_TRUNCATES, account->truncates);
}

/* The clock may have been set back. */
void
papply_account_time(int64 us)
{
	papply_statistics_count(PAPPLY_COUNT_APPLY_US, Max(us, 0));
}

void
papply_account_retry(void)
{
	my_counters()->retries++;
	papply_statistics_count(PAPPLY_COUNT_RETRIES, 1);
}

/*
 * That the older wins has a counter of its own, and that the pool was closed is
 * no error.
 */
void
papply_account_error(const ErrorData *error)
{
	if (error->sqlerrcode == PAPPLY_ERRCODE_OLDER_WINS)
	{
		my_counters()->older_wins++;
		papply_statistics_count(PAPPLY_COUNT_OLDER_WINS, 1);
	}
	else if (papply_pool->is_open)
		papply_statistics_note_error(error->message);
}

void
papply_account_replay(PapplyCounter reason)
{
	my_counters()->native_replays++;
	papply_statistics_count(reason, 1);
}
