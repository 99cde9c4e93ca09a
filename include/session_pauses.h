/*-------------------------------------------------------------------------
 * session_pauses.h
 *	  Pauses of subscriptions that last as long as the sessions that asked for them.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_PAUSES_H
#define PAPPLY_SESSION_PAUSES_H

#include "access/xlogdefs.h"

#include "parallel_apply.h"

/* The receiver leaves REQUESTED; another position makes it REQUESTED again. */
typedef enum PapplySessionPauseState
{
	PAPPLY_PAUSE_REQUESTED,		/* nothing beyond the position is begun, once
								 * the receiver has noticed */
	PAPPLY_PAUSE_REACHED,		/* everything before it is committed, too */
	PAPPLY_PAUSE_PASSED			/* something beyond it had begun before; there
								 * is no pause */
} PapplySessionPauseState;

typedef struct PapplySessionPause
{
	Oid			subid;			/* InvalidOid: unused */
	int			pid;			/* of the session */
	XLogRecPtr	remote_lsn;		/* of the publisher; InvalidXLogRecPtr: the
								 * receiver has not set it yet */
	bool		has_position;	/* the session has given one; otherwise, it is
								 * where the subscription is */
	PapplySessionPauseState state;
} PapplySessionPause;

extern void papply_session_pauses_request_shmem(void);
extern void papply_session_pauses_init_shmem(void);

/*
 * A user's backend: pause the subscription at this position, until the session
 * ends or the pause is removed.  A position that the session has requested
 * before is replaced.  Return 0, or the process ID of another session that
 * pauses the subscription, or -1 if there are too many pauses.
 */
extern int	papply_session_pauses_set(Oid subid, XLogRecPtr remote_lsn);

/* Remove the pause of a subscription, of any session, or only of this one. */
extern void papply_session_pauses_remove(Oid subid);
extern void papply_session_pauses_remove_own(Oid subid);

/* Copy the pause of a subscription; return false if there is none. */
extern bool papply_session_pauses_get(Oid subid, PapplySessionPause *copy);

/* This number changes with every pause, and is read without a lock. */
extern uint32 papply_session_pauses_changes(void);

/*
 * Receiver: set position and state of a pause, unless another one has replaced
 * the one that was read.
 */
extern void papply_session_pauses_report(const PapplySessionPause *read, XLogRecPtr remote_lsn,
										 PapplySessionPauseState state);

#endif							/* PAPPLY_SESSION_PAUSES_H */
