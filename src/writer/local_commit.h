/*-------------------------------------------------------------------------
 * local_commit.h
 *	  The local transaction that applies remote ones, and its commit in turn.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOCAL_COMMIT_H
#define PAPPLY_LOCAL_COMMIT_H

#include "message.h"

/*
 * Call once in a writer, when it is connected.  check is called when the turn
 * of each commit has come, and may throw an error.
 */
extern void papply_local_init(void (*check) (void));

/*
 * Begin the local transaction if none is open.  Its time is the statement's, which
 * the caller has set (claim.c).
 */
extern void papply_local_begin(void);

/*
 * Release the snapshot for a long sleep, so that sessions that wait for old
 * snapshots do not wait for us; and take one again.
 */
extern void papply_local_release_snapshot(void);
extern void papply_local_take_snapshot(void);

/* A long transaction gets a new snapshot after this number of changes. */
#define PAPPLY_SNAPSHOT_CHANGES 100

/* Take a newer snapshot for the following changes. */
extern void papply_local_renew_snapshot(void);

/*
 * End the transactions first to last in their turn, even if nothing was done
 * locally.  commit is from the message that ends the last one.  A transaction
 * that ends by anything other than COMMIT must be the only one.  Throws like
 * papply_commit_order_enter(), and whatever preparing a transaction or
 * finishing a prepared one throws.
 */
extern void papply_local_commit(uint64 first, uint64 last, const PapplyCommit *commit);

/* Roll back after an error, whose error state has been copied and flushed. */
extern void papply_local_abort(void);

#endif							/* PAPPLY_LOCAL_COMMIT_H */
