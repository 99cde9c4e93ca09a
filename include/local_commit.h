/*-------------------------------------------------------------------------
 * room: writer
 *
 * local_commit.h
 *	  The local transaction that applies remote ones, and its commit in turn.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOCAL_COMMIT_H
#define PAPPLY_LOCAL_COMMIT_H

#include "message.h"

/*
 * Once in a writer, connected; origin is the subscription's.  check is called
 * when the turn of each commit has come, and may throw.
 */
extern void papply_local_init(PapplyOriginId origin, int receiver_pid, void (*check) (void));

/* Begin the local transaction unless there is one. */
extern void papply_local_begin(void);

/* For a long sleep: others, who wait for all that have a snapshot, need not wait for us. */
extern void papply_local_release_snapshot(void);
extern void papply_local_take_snapshot(void);

/* Take a newer snapshot for what follows. */
extern void papply_local_renew_snapshot(void);

/*
 * End first..last, whose last message says commit, in their turn; also if
 * nothing was done locally.  Other than by COMMIT a transaction ends alone.
 * Throws like papply_commit_order_enter(), and what preparing throws, or
 * finishing what is not prepared.
 */
extern void papply_local_commit(uint64 first, uint64 last, const PapplyCommit *commit);

/* After an error: roll back.  The error state has been taken already. */
extern void papply_local_abort(void);

#endif							/* PAPPLY_LOCAL_COMMIT_H */
