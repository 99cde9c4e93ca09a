/*-------------------------------------------------------------------------
 * kept.h
 *	  Storage of skipped transactions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_KEPT_H
#define PAPPLY_KEPT_H

#include "datatype/timestamp.h"
#include "utils/relcache.h"

#include "parallel_apply.h"

/* Columns of parallel_apply.kept_transactions. */
typedef enum PapplyKeptColumn
{
	PAPPLY_KEPT_ID = 1,
	PAPPLY_KEPT_SUBID,
	PAPPLY_KEPT_REMOTE_XID,
	PAPPLY_KEPT_COMMIT_TIME,
	PAPPLY_KEPT_FINISH_LSN,
	PAPPLY_KEPT_FIRST_FAILURE,
	PAPPLY_KEPT_LAST_FAILURE,
	PAPPLY_KEPT_ATTEMPTS,
	PAPPLY_KEPT_SQLSTATE,
	PAPPLY_KEPT_MESSAGE,
	PAPPLY_KEPT_CHANGE,
	PAPPLY_KEPT_DETAIL,
	PAPPLY_KEPT_CONTEXT,
	PAPPLY_KEPT_SCHEMANAME,
	PAPPLY_KEPT_RELNAME,
	PAPPLY_KEPT_OPERATION,
	PAPPLY_KEPT_KEY
} PapplyKeptColumn;

#define PAPPLY_KEPT_COLUMNS PAPPLY_KEPT_KEY

#define PAPPLY_KEPT_TRANSACTIONS "kept_transactions"
#define PAPPLY_KEPT_MESSAGES "kept_messages"

/*
 * All functions must be called in a transaction.  Is this one of the two
 * relations?  The extension has no other materialized views.
 */
extern bool papply_kept_is_stored_in(Oid relid);

/*
 * Open one of the two relations.  Returns NULL if the extension is not installed in this
 * database, or is dropped while this waits for the lock.
 */
extern Relation papply_kept_open(const char *name, LOCKMODE lock_mode);

/*
 * Return the number of the transaction if it is stored, or should be stored
 * when it is skipped; else 0.
 */
extern int64 papply_kept_find(Oid subid, XLogRecPtr finish_lsn);

/*
 * Return a number that no transaction has had, for a row that the caller
 * inserts.  It has locked kept_transactions against others that do the same.
 */
extern int64 papply_kept_next_id(void);

/*
 * Return the subscription of the transaction with this number, or InvalidOid.
 */
extern Oid	papply_kept_subscription(int64 id);

/* Throw the error that there is no transaction with this number. */
PAPPLY_NORETURN extern void papply_kept_refuse_missing(int64 id);

/* Remove a transaction and its messages.  Returns the number of messages. */
extern uint64 papply_kept_remove(int64 id);

/*
 * Remove the rows of transactions that will not be stored: another one came
 * first, or they were prepared and rolled back.  The caller has locked
 * kept_transactions against others that insert such rows.
 */
extern void papply_kept_remove_unused(void);

/*
 * May any transaction of a subscription still be stored, when it is skipped or,
 * if it was prepared, committed?
 */
extern bool papply_kept_has_requests(Oid subid);

/*
 * A transaction that was prepared on the publisher is about to end there, with
 * a record at end_lsn or before.  If it was skipped, let its stored messages
 * have the time of its COMMIT PREPARED, or with 0 remove the row that they
 * belong to, for its ROLLBACK PREPARED.
 */
extern void papply_kept_end_prepared(Oid subid, TransactionId remote_xid, XLogRecPtr end_lsn,
									 TimestampTz commit_time);

/*
 * Return the time at which the transaction with this number was committed on
 * the publisher, or 0 if it is not known.
 */
extern TimestampTz papply_kept_commit_time(int64 id);

/*
 * Remove the transactions of a subscription.  Returns how many of them had
 * been stored.
 */
extern int	papply_kept_remove_all(Oid subid);

/*
 * Return the least number above this one of a transaction of the subscription
 * that is stored, and not prepared; 0 if there is none.
 */
extern int64 papply_kept_next_stored(Oid subid, int64 id);

/* Are any transactions stored?  Are any to be stored when they are skipped? */
extern bool papply_kept_exist(void);
extern bool papply_kept_are_pending(void);

/*
 * Read the messages of a transaction in order.  Each message is valid until
 * the next call.  The snapshot is that of the latest commit.
 */
typedef struct PapplyKeptScan PapplyKeptScan;

extern PapplyKeptScan *papply_kept_begin_scan(int64 id);
extern char *papply_kept_next(PapplyKeptScan *scan, int *length);
extern void papply_kept_end_scan(PapplyKeptScan *scan);

/*
 * Store the messages of a transaction, which next_message() returns one after
 * the other, allocated in the current memory context, and then NULL.  The
 * caller has found the transaction by one of the functions above, whose lock
 * excludes DROP EXTENSION.
 */
extern void papply_kept_store(int64 id, char *(*next_message) (int *length));

#endif							/* PAPPLY_KEPT_H */
