/*-------------------------------------------------------------------------
 * account.h
 *	  What a writer does in a local transaction: its counts, and what
 *	  pg_stat_activity shows.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ACCOUNT_H
#define PAPPLY_ACCOUNT_H

#include "pool.h"
#include "statistics.h"
#include "target.h"

/* The local transaction that is being made. */
typedef struct PapplyAccount
{
	uint64		first;			/* the remote transactions, as of the start of
								 * the attempt */
	uint64		last;
	uint64		rows;			/* changed one by one */
	uint64		inserts;		/* of rows, as updates; the rest are DELETEs */
	uint64		updates;
	uint64		truncates;

	/* transactions, by why they are applied exclusively */
	uint64		exclusive_table;
	uint64		exclusive_truncates;
} PapplyAccount;

extern PapplyAccount papply_account;

/* The writer has claimed transactions. */
extern void papply_account_claim(void);

/* Start counting an attempt to apply some of them as one local transaction. */
extern void papply_account_begin(uint64 first, uint64 last, int64 now);

/*
 * Show how many changes of the transactions are known so far.  Call it from
 * time to time.
 */
extern void papply_account_show_known(void);

/*
 * Count a row that is about to be changed by a message of this type.  Returns
 * its number in the transaction.
 */
static inline uint64
papply_account_change(char type)
{
	papply_pool->writers[papply_pool_waiter].changes_done++;
	papply_account.inserts += type == LOGICAL_REP_MSG_INSERT;
	papply_account.updates += type == LOGICAL_REP_MSG_UPDATE;
	return ++papply_account.rows;
}

/*
 * Count a transaction of the queue that has been applied and not committed
 * yet.
 */
extern void papply_account_applied(uint64 seqno);

/* Add the counts to the statistics after the commit. */
extern void papply_account_commit(void);

/*
 * Count a further attempt, for the subscription when it is committed; count an
 * error, after the rollback, which may be in favor of an older transaction.
 */
extern void papply_account_retry(void);
extern void papply_account_error(bool is_for_older);

/*** by table ***/

/* Count a change of this kind (LOGICAL_REP_MSG_...) that has been applied. */
extern void papply_account_table_change(PapplyTarget *target, char type);

/* Add n to a counter of the target, which must not be a partition. */
extern void papply_account_table_add(PapplyTarget *target, PapplyTableCounter counter, uint64 n);

/*
 * Count a conflict of the target, which must not be a partition, and remember
 * the key of its row.
 */
extern void papply_account_table_conflict(PapplyTarget *target, PapplyConflictType type,
										  const char *key);

/*
 * Add the counts at the end of the local transaction.  If it was rolled back,
 * its changes and conflicts do not count, but everything else does.
 */
extern void papply_account_end_tables(bool is_committed);

/*** pg_stat_activity ***/

/*
 * Show the name of the writer as application_name.  (The setting itself is
 * that of an apply worker, for triggers.)  The name must be shown again after
 * the setting has changed, by a reload or by user code;
 * papply_account_show_table(NULL) does that as well.
 */
extern void papply_account_show_name(void);

/*
 * Show that the writer works on this table, or that it is idle (NULL).  Call
 * it before waiting for the table's lock.  A table is recognized by its
 * pointer, which is only compared.
 */
extern void papply_account_show_table(const char *table);

/*
 * Forget the table that is shown, because its label is about to be freed or
 * must be shown again.
 */
extern void papply_account_forget_table(void);

#endif							/* PAPPLY_ACCOUNT_H */
