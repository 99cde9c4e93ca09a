/*-------------------------------------------------------------------------
 * replay.h
 *	  What a session and the process that replays a skipped transaction for
 *	  it have in common.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REPLAY_H
#define PAPPLY_REPLAY_H

#include "parallel_apply.h"

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
	PapplyReplayError error;
} PapplyReplay;

#endif							/* PAPPLY_REPLAY_H */
