/*-------------------------------------------------------------------------
 * position.h
 *	  Snapshots of both servers that show the same transactions.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_POSITION_H
#define VERIFY_POSITION_H

#include "postgres_fe.h"

#include "server.h"

typedef struct Position
{
	PGconn	   *slot;			/* session with the temporary slot; NULL: none */
	char	   *lsn;			/* in the publisher's WAL */
	char	   *snapshots[2];	/* exported, by Side */
	double		held_ms;		/* time for which apply was held */
} Position;

/*
 * Take both snapshots.  sessions are ordinary ones of both sides; when this returns,
 * each is in a transaction that has the snapshot of its side.  The snapshots can be
 * imported until release_slot(), on the subscriber as long as its session is there.
 * A position that was taken before is replaced, however long that takes; the first one has
 * to be found within some attempts.
 */
extern void take_position(Position *position, const Target *targets, PGconn **sessions,
						  const char *subscription);

/* Drop the slot, which keeps WAL. */
extern void release_slot(Position *position);

/* Begin a transaction with a snapshot of take_position(). */
extern void import_snapshot(PGconn *conn, const char *snapshot);

/* Return the milliseconds since the first call. */
extern double now_ms(void);

#endif							/* VERIFY_POSITION_H */
