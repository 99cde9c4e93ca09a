/*-------------------------------------------------------------------------
 * room: pool
 *
 * kept.h
 *	  Where transactions are stored that were skipped.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_KEPT_H
#define PAPPLY_KEPT_H

#include "access/genam.h"
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
	PAPPLY_KEPT_SCHEMANAME,
	PAPPLY_KEPT_RELNAME,
	PAPPLY_KEPT_OPERATION,
	PAPPLY_KEPT_KEY
} PapplyKeptColumn;

#define PAPPLY_KEPT_COLUMNS PAPPLY_KEPT_KEY

#define PAPPLY_KEPT_TRANSACTIONS "kept_transactions"
#define PAPPLY_KEPT_MESSAGES "kept_messages"

/*
 * All of them within a transaction.  Open one of the two; NULL if the extension is not
 * installed in this database.
 */
extern Relation papply_kept_open(const char *name, LOCKMODE lock_mode);

/* That one is to be skipped and stored, or is: its number; 0: it is not. */
extern int64 papply_kept_find(Oid subid, XLogRecPtr finish_lsn);

/* A number that none has; the relation of transactions is locked for those who ask. */
extern int64 papply_kept_next_id(Relation transactions);

/* The subscription that a number belongs to, or InvalidOid. */
extern Oid	papply_kept_subscription(int64 id);

/* Remove one, with its messages; returns how many messages there were. */
extern uint64 papply_kept_remove(int64 id);

/* Remove those of a subscription; returns how many were stored. */
extern int	papply_kept_remove_all(Oid subid);

/* Are there any that are stored?  And any that are to be, when they are skipped? */
extern bool papply_kept_exist(void);
extern bool papply_kept_are_pending(void);

/*
 * The messages of one, in their order: each one is valid up to the next.  The snapshot
 * is that of the latest commit.
 */
typedef struct PapplyKeptScan PapplyKeptScan;

extern PapplyKeptScan *papply_kept_begin_scan(int64 id);
extern char *papply_kept_next(PapplyKeptScan *scan, int *length);
extern void papply_kept_end_scan(PapplyKeptScan *scan);

/* Store messages of one, from the first one on. */
typedef struct PapplyKeptWriter PapplyKeptWriter;

extern PapplyKeptWriter *papply_kept_begin_writing(int64 id);
extern void papply_kept_write(PapplyKeptWriter *writer, const char *message, int length);
extern void papply_kept_end_writing(PapplyKeptWriter *writer);

#endif							/* PAPPLY_KEPT_H */
