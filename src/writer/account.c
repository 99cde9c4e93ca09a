/*-------------------------------------------------------------------------
 * account.c
 *	  What a writer does in a local transaction: its counts, and what
 *	  pg_stat_activity shows.
 *
 * Runs in a writer.
 *
 * There are two sets of counters: those of the writer, since it started
 * (parallel_apply.writers), and those of the subscription, which survive the
 * writer (statistics.c).  Changes are kept apart until their transaction is
 * committed, so work that was rolled back is not counted.  key_wait.c keeps the
 * counts by key.
 *
 * If slow transactions are logged, time and waits are measured from the first
 * attempt on, whichever attempt was committed.
 *
 * By table, a row costs one increment in the memory of this process.  The sums
 * are added to shared memory (table_statistics.c), table by table, at the end
 * of a local transaction, after other writers have been released.  The table
 * that is counted has the name of the remote relation.  Changes of a
 * partitioned table are counted for that table and not for its partitions,
 * because it is the one that the subscription contains.
 *
 * pg_stat_activity shows, instead of a query, the table that the writer works
 * on and the commit position of the remote transaction.  For a batch, that is
 * the transaction that was the first to change this table.  The text is set at
 * the first change of a table in each local transaction, so it is formatted
 * without printf functions, which are slow.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "utils/timestamp.h"

#include "account.h"
#include "message.h"
#include "pool.h"
#include "queue.h"
#include "slow_log.h"

PapplyAccount papply_account;

/*
 * All attempts since the last commit.  Waits before the first one are subtracted.
 */
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

/*** by table ***/

static PapplyTarget *counted_targets = NULL;

void
papply_account_table_add(PapplyTarget *target, PapplyTableCounter counter, uint64 n)
{
	Assert(counter < PAPPLY_TABLE_COUNTERS && !OidIsValid(target->key.partition));
	target->counts[counter] += n;
	if (target->is_counted)
		return;
	target->is_counted = true;
	target->next_counted = counted_targets;
	counted_targets = target;
}

void
papply_account_table_change(PapplyTarget *target, char type)
{
	papply_account_table_add(target,
							 type == LOGICAL_REP_MSG_INSERT ? PAPPLY_TABLE_INSERTS :
							 type == LOGICAL_REP_MSG_UPDATE ? PAPPLY_TABLE_UPDATES :
							 PAPPLY_TABLE_DELETES, 1);
}

void
papply_account_table_conflict(PapplyTarget *target, PapplyConflictType type, const char *key)
{
	papply_account_table_add(target, PAPPLY_TABLE_CONFLICTS + type, 1);
	target->last_conflict.type = type;
	target->last_conflict.at = GetCurrentTimestamp();
	papply_text_copy(target->last_conflict.key, key, sizeof(target->last_conflict.key));
}

/* Drop what counts only if the transaction is committed. */
static void
forget_changes(PapplyTarget *target)
{
	uint64	   *counts = target->counts;

	counts[PAPPLY_TABLE_INSERTS] = counts[PAPPLY_TABLE_UPDATES] = counts[PAPPLY_TABLE_DELETES] = 0;
	memset(&counts[PAPPLY_TABLE_CONFLICTS], 0, sizeof(uint64) * PAPPLY_CONFLICT_TYPES);
	target->last_conflict.at = 0;
}

void
papply_account_end_tables(bool is_committed)
{
	for (PapplyTarget *target = counted_targets; target != NULL; target = target->next_counted)
	{
		if (!is_committed)
			forget_changes(target);
		papply_table_statistics_add(papply_pool->subid, target->local_relid, target->counts,
									&target->last_conflict, &target->hint);
		memset(target->counts, 0, sizeof(target->counts));
		target->last_conflict.at = 0;
		target->is_counted = false;
	}
	counted_targets = NULL;
}

/*** pg_stat_activity ***/

/* NULL: idle; empty: must be set again. */
static const char *shown_table = "";

static char *
put_hex(char *to, uint32 value, int min_digits)
{
	int			digits = min_digits;

	while (digits < 8 && (value >> (4 * digits)) != 0)
		digits++;
	while (--digits >= 0)
		*to++ = "0123456789ABCDEF"[(value >> (4 * digits)) & 0xF];
	return to;
}

void
papply_account_show_name(void)
{
	pgstat_report_appname(MyBgworkerEntry->bgw_name);
}

void
papply_account_show_table(const char *table)
{
	char		shown[2 * NAMEDATALEN + 32];
	XLogRecPtr	lsn;
	size_t		length;
	char	   *end;

	if (table == shown_table)
		return;
	shown_table = table;
	if (table == NULL)
	{
		papply_account_show_name();
		pgstat_report_activity(STATE_IDLE, NULL);
		return;
	}
	lsn = papply_pool->writers[papply_pool_waiter].remote_final_lsn;
	length = strnlen(table, 2 * NAMEDATALEN - 1);
	memcpy(shown, table, length);
	end = shown + length;
	*end++ = ' ';
	end = put_hex(end, lsn >> 32, 1);
	*end++ = '/';
	end = put_hex(end, (uint32) lsn, PAPPLY_LSN_MIN_DIGITS);
	*end = '\0';
	pgstat_report_activity(STATE_RUNNING, shown);
}

void
papply_account_forget_table(void)
{
	if (shown_table != NULL)
		shown_table = "";
}
