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

/* Of the transaction that is being applied. */
typedef struct PapplyAccount
{
	uint64		rows;			/* changed one by one */
	uint64		inserts;		/* of them; the others are DELETEs */
	uint64		updates;
	uint64		truncates;
} PapplyAccount;

extern PapplyAccount papply_account;

/* An attempt to apply transactions begins. */
extern void papply_account_begin(void);

/* A row is about to be changed by a message of that type; returns its number. */
static inline uint64
papply_account_change(char type)
{
	papply_account.inserts += type == LOGICAL_REP_MSG_INSERT;
	papply_account.updates += type == LOGICAL_REP_MSG_UPDATE;
	return ++papply_account.rows;
}

/* So many remote transactions have been committed as one local transaction. */
extern void papply_account_commit(uint64 transactions);

/* All changes have been applied, in so long without waits for other writers. */
extern void papply_account_time(int64 us);

/* A second attempt; an error of the first one, which is rolled back. */
extern void papply_account_retry(void);
extern void papply_account_error(const ErrorData *error);

/* The native loop has to do a transaction; why. */
extern void papply_account_replay(PapplyCounter reason);

#endif							/* PAPPLY_ACCOUNT_H */
