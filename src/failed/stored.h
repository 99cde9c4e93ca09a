/*-------------------------------------------------------------------------
 * stored.h
 *	  Storage of skipped transactions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STORED_H
#define PAPPLY_STORED_H

#include "datatype/timestamp.h"
#include "utils/relcache.h"

#include "parallel_apply.h"

/* Columns of parallel_apply.kept_transactions. */
typedef enum PapplyStoredColumn
{
	PAPPLY_STORED_ID = 1,
	PAPPLY_STORED_SUBID,
	PAPPLY_STORED_REMOTE_XID,
	PAPPLY_STORED_COMMIT_TIME,
	PAPPLY_STORED_FINISH_LSN,
	PAPPLY_STORED_FIRST_FAILURE,
	PAPPLY_STORED_LAST_FAILURE,
	PAPPLY_STORED_ATTEMPTS,
	PAPPLY_STORED_SQLSTATE,
	PAPPLY_STORED_MESSAGE,
	PAPPLY_STORED_CHANGE,
	PAPPLY_STORED_DETAIL,
	PAPPLY_STORED_CONTEXT,
	PAPPLY_STORED_SCHEMANAME,
	PAPPLY_STORED_RELNAME,
	PAPPLY_STORED_OPERATION,
	PAPPLY_STORED_KEY
} PapplyStoredColumn;

#define PAPPLY_STORED_COLUMNS PAPPLY_STORED_KEY

#define PAPPLY_STORED_TRANSACTIONS "kept_transactions"
#define PAPPLY_STORED_MESSAGES "kept_messages"

/*
 * All functions must be called in a transaction.  Is this one of the two
 * relations?  The extension has no other materialized views.
 */
extern bool papply_stored_is_relation(Oid relid);

/*
 * Open one of the two relations.  Returns NULL if the extension is not installed in this
 * database, or is dropped while this waits for the lock.
 */
extern Relation papply_stored_open(const char *name, LOCKMODE lock_mode);

/*
 * Return the number of the transaction if it is stored, or should be stored
 * when it is skipped; else 0.
 */
extern int64 papply_stored_find(Oid subid, XLogRecPtr finish_lsn);

/*
 * Return a number that no transaction has had, for a row that the caller
 * inserts.  It has locked kept_transactions against others that do the same.
 */
extern int64 papply_stored_next_id(void);

/*
 * Return the subscription of the transaction with this number, or InvalidOid.
 */
extern Oid	papply_stored_subscription(int64 id);

/*
 * Is the transaction with this number, of this subscription, still to be stored?  Waits for
 * sessions that insert and remove rows of transactions; until the end of the
 * local transaction, none that begins removes this one.
 */
extern bool papply_stored_is_requested(int64 id, Oid subid);

/* Throw the error that there is no transaction with this number. */
PAPPLY_NORETURN extern void papply_stored_refuse_missing(int64 id);

/* Remove a transaction and its messages.  Returns the number of messages. */
extern uint64 papply_stored_remove(int64 id);

/*
 * Remove the rows of transactions that will not be stored: another one came
 * first, or they were prepared and rolled back.  Remove messages of transactions that
 * have no row, too.  The caller has locked
 * kept_transactions against others that insert such rows.
 */
extern void papply_stored_remove_unused(void);

/*
 * May any transaction of a subscription still be stored, when it is skipped or,
 * if it was prepared, committed?  Does not wait for locks; returns true if it would
 * have to.
 */
extern bool papply_stored_has_requests(Oid subid);

/*
 * A transaction that was prepared on the publisher is about to end there, with
 * a record at end_lsn or before.  If it was skipped, let its stored messages
 * have the time of its COMMIT PREPARED, or with 0 remove the row that they
 * belong to, for its ROLLBACK PREPARED.  Does not wait for locks; does nothing if it
 * would have to.
 */
extern void papply_stored_end_prepared(Oid subid, TransactionId remote_xid, XLogRecPtr end_lsn,
									   TimestampTz commit_time);

/*
 * Return the time at which the transaction with this number was committed on
 * the publisher, or 0 if it is not known.
 */
extern TimestampTz papply_stored_commit_time(int64 id);

/*
 * Remove the transactions of a subscription.  Returns how many of them had
 * been stored.
 */
extern int	papply_stored_remove_all(Oid subid);

/*
 * Return the least number above this one of a transaction of the subscription
 * that is stored, and not prepared; 0 if there is none.
 */
extern int64 papply_stored_next_id_after(Oid subid, int64 id);

/*
 * Keep kept_messages from being changed until the end of the transaction.  Returns false if
 * a transaction is being stored or removed, or is stored and prepared.
 */
extern bool papply_stored_lock_messages(void);

/* Are any transactions stored?  Are any to be stored when they are skipped? */
extern bool papply_stored_exist(void);
extern bool papply_stored_are_pending(void);

/*
 * Read the messages of a transaction in order, or only the last one, as the first call of a
 * scan.  Each message is valid until the next call.  The snapshot is that of the latest
 * commit.
 */
typedef struct PapplyStoredScan PapplyStoredScan;

extern PapplyStoredScan *papply_stored_begin_scan(int64 id);
extern char *papply_stored_next(PapplyStoredScan *scan, int *length);
extern char *papply_stored_last(PapplyStoredScan *scan, int *length);
extern void papply_stored_end_scan(PapplyStoredScan *scan);

/*
 * Store the messages of a transaction, which next_message() returns one after
 * the other, allocated in the current memory context, and then NULL.  The
 * caller has found the transaction by one of the functions above, whose lock
 * excludes DROP EXTENSION.
 */
extern void papply_stored_insert(int64 id, char *(*next_message) (int *length));

/*** replay of a stored transaction ***/

/*
 * Drop the origin of a replay if a crash has left it behind.  The caller is in
 * a transaction.  Does nothing if a transaction is being replayed.
 */
extern void papply_replay_drop_origin(Oid subid);

#define PAPPLY_REPLAY_TYPE "parallel_apply replay"

/* Longer texts of an error are truncated. */
#define PAPPLY_REPLAY_TEXT 4096

/*
 * The fields of an error that a session shows.  Empty strings are missing
 * texts.
 */
typedef struct PapplyReplayError
{
	int			sqlerrcode;		/* 0: there is no error */
	char		message[PAPPLY_REPLAY_TEXT];
	char		detail[PAPPLY_REPLAY_TEXT];
	char		hint[PAPPLY_REPLAY_TEXT];
	char		context[PAPPLY_REPLAY_TEXT];
	char		schema_name[NAMEDATALEN];
	char		table_name[NAMEDATALEN];
	char		column_name[NAMEDATALEN];
	char		datatype_name[NAMEDATALEN];
	char		constraint_name[NAMEDATALEN];
} PapplyReplayError;

/* In a dynamic shared memory segment of its own. */
typedef struct PapplyReplay
{
	/* set by the session before the process starts */
	Oid			dbid;
	Oid			subid;
	Oid			userid;			/* owner of the subscription */
	int64		id;				/* of the skipped transaction */
	char		synchronous_commit[NAMEDATALEN];	/* value of the setting */

	/* set by the process, read by the session when it has ended */
	bool		is_committed;
	char		left_out[PAPPLY_REPLAY_TEXT];	/* names of tables */
	PapplyReplayError error;
} PapplyReplay;

#endif							/* PAPPLY_STORED_H */
