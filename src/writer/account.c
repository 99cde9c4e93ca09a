/*-------------------------------------------------------------------------
 * account.c
 *	  What a writer does in a local transaction, counted when it is committed.
 *
 * Runs in a writer.
 *
 * There are two sets of counters: those of the writer, since it started
 * (parallel_apply.writers), and those of the subscription, which survive the
 * writer (statistics.c).  Changes are kept apart until their transaction is
 * committed, so work that was rolled back is not counted.  count.c and
 * key_wait.c keep the counts by table and by key.
 *
 * If slow transactions are logged, time and waits are measured from the first
 * attempt on, whichever attempt was committed.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "account.h"
#include "queue.h"
#include "slow_log.h"

PapplyAccount papply_account;

/* All attempts since the last commit; times waited before are not theirs. */
typedef struct Attempts
{
	int64		began_at;		/* of the first one; 0: there was none */
	uint64		retries;
	uint64		waited_before_us[PAPPLY_COUNTERS - PAPPLY_FIRST_TIME];
} Attempts;

static Attempts attempts;

static PapplyWriterCounters *
my_counters(void)
{
	return &papply_pool_my_writer_slot()->counters;
}

void
papply_account_claim(void)
{
	attempts.began_at = 0;
	attempts.retries = 0;
}

/*
 * Get the times that the writers in this slot have waited, including those
 * before a restart.
 */
static void
get_waited_us(uint64 *waited_us)
{
	memcpy(waited_us, papply_statistics_counts + PAPPLY_FIRST_TIME,
		   sizeof(attempts.waited_before_us));
	waited_us[PAPPLY_COUNT_LOCK_US - PAPPLY_FIRST_TIME] = papply_pool_my_writer_slot()->lock_wait_us;
}

void
papply_account_begin(uint64 first, uint64 last, int64 now)
{
	Assert(first <= last);
	memset(&papply_account, 0, sizeof(papply_account));
	papply_account.first = first;
	papply_account.last = last;
	papply_pool_my_writer_slot()->began_at = now;
	papply_pool_my_writer_slot()->changes_done = papply_pool_my_writer_slot()->changes_received = 0;
	papply_account_show_known();
	if (attempts.began_at != 0)
		return;
	attempts.began_at = now;
	if (papply_slow_log_is_on())
		get_waited_us(attempts.waited_before_us);
}

void
papply_account_show_known(void)
{
	uint64		changes = 0;

	if (papply_account.first == PAPPLY_SEQNO_OPEN)
		return;					/* not known */
	for (uint64 seqno = papply_account.first; seqno <= papply_account.last; seqno++)
		changes += papply_queue_transaction(seqno)->changes;
	papply_pool_my_writer_slot()->changes_received = changes;
}

static void
log_if_slow(void)
{
	PapplyApplied applied = {0};

	applied.transactions = papply_account.last - papply_account.first + 1;
	applied.remote_xid = papply_pool_my_writer_slot()->remote_xid;
	applied.final_lsn = papply_pool_my_writer_slot()->remote_final_lsn;
	applied.changes = papply_account.rows + papply_account.truncates;
	get_waited_us(applied.waited_us);
	for (int i = 0; i < lengthof(applied.waited_us); i++)
		applied.waited_us[i] -= attempts.waited_before_us[i];
	papply_slow_log_report(&applied, attempts.began_at);
}

void
papply_account_applied(uint64 seqno)
{
	PapplyCounter reason = papply_queue_transaction(seqno)->exclusive_reason;

	papply_account.exclusive_table += reason == PAPPLY_COUNT_EXCLUSIVE_TABLE;
	papply_account.exclusive_truncates += reason == PAPPLY_COUNT_EXCLUSIVE_TRUNCATE;
}

void
papply_account_commit(void)
{
	PapplyAccount *account = &papply_account;
	uint64		transactions = account->last - account->first + 1;

	my_counters()->transactions += transactions;
	my_counters()->rows += account->rows;
	papply_statistics_count(PAPPLY_COUNT_TRANSACTIONS, transactions);
	papply_statistics_count(PAPPLY_COUNT_BATCHES, 1);
	papply_statistics_count(PAPPLY_COUNT_INSERTS, account->inserts);
	papply_statistics_count(PAPPLY_COUNT_UPDATES, account->updates);
	papply_statistics_count(PAPPLY_COUNT_DELETES,
							account->rows - account->inserts - account->updates);
	papply_statistics_count(PAPPLY_COUNT_TRUNCATES, account->truncates);
	papply_statistics_count(PAPPLY_COUNT_EXCLUSIVE_TABLE, account->exclusive_table);
	papply_statistics_count(PAPPLY_COUNT_EXCLUSIVE_TRUNCATE, account->exclusive_truncates);
	papply_statistics_count(PAPPLY_COUNT_RETRIES, attempts.retries);
	attempts.retries = 0;
	if (papply_slow_log_is_on())
		log_if_slow();
	attempts.began_at = 0;
}

void
papply_account_retry(void)
{
	my_counters()->retries++;
	attempts.retries++;
}

/*
 * Count an error of a writer as a failed attempt: the transaction is tried
 * again, in the end by the apply worker, whose error counts as an error of the
 * subscription.  An abort in favor of an older transaction has a counter of
 * its own.  Errors that result from closing the pool, or that end an attempt
 * to apply a transaction in progress, do not count.
 */
void
papply_account_error(bool is_for_older)
{
	if (is_for_older)
	{
		my_counters()->commit_order_aborts++;
		papply_statistics_count(PAPPLY_COUNT_COMMIT_ORDER_ABORTS, 1);
	}
	else if (papply_pool->is_open && papply_account.first != PAPPLY_SEQNO_OPEN)
		papply_statistics_count(PAPPLY_COUNT_FAILED_ATTEMPTS, 1);
}
