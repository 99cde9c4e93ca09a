/*-------------------------------------------------------------------------
 * room: writer
 *
 * account.h
 *	  What a writer does in a local transaction, counted when it is committed.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ACCOUNT_H
#define PAPPLY_ACCOUNT_H

#include "replication/logicalproto.h"

#include "statistics.h"

/* Of the local transaction that is being made. */
typedef struct PapplyAccount
{
	uint64		first;			/* the remote ones, as of the attempt's
								 * beginning */
	uint64		last;
	uint64		rows;			/* changed one by one */
	uint64		inserts;		/* of them; the others are DELETEs */
	uint64		updates;
	uint64		truncates;

	/* transactions, by why they are applied exclusively */
	uint64		exclusive_table;
	uint64		exclusive_truncates;
} PapplyAccount;

extern PapplyAccount papply_account;

/* The writer has claimed something. */
extern void papply_account_claim(void);

/* An attempt to apply some of it as one local transaction begins now. */
extern void papply_account_begin(uint64 first, uint64 last, int64 now);

/* Show, now and then, how many changes there are as far as it is known. */
extern void papply_account_show_known(void);

/* A row is about to be changed by a message of that type; returns its number. */
static inline uint64
papply_account_change(char type)
{
	papply_pool->writers[papply_pool_waiter].changes_done++;
	papply_account.inserts += type == LOGICAL_REP_MSG_INSERT;
	papply_account.updates += type == LOGICAL_REP_MSG_UPDATE;
	return ++papply_account.rows;
}

/* A transaction of the queue has been applied; it is about to be committed. */
extern void papply_account_applied(uint64 seqno);

/* It has been committed.  What was counted in it is added to the statistics. */
extern void papply_account_commit(void);

/* All changes have been applied, in so long without waits for other writers. */
extern void papply_account_time(int64 us);

/* A second attempt; an error of the first one, which is rolled back. */
extern void papply_account_retry(void);
extern void papply_account_error(const ErrorData *error);

/* The native loop has to do a transaction. */
extern void papply_account_replay(void);

#endif							/* PAPPLY_ACCOUNT_H */
