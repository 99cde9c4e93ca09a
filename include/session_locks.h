/*-------------------------------------------------------------------------
 * session_locks.h
 *	  Advisory locks that user code keeps beyond its transaction.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_LOCKS_H
#define PAPPLY_SESSION_LOCKS_H

/*
 * Receiver, outside of a transaction: if its session keeps such locks, it alone
 * runs user code from now on (single_session.h).
 */
extern void papply_session_locks_note(void);

/*
 * Writer, before the commit: throw an error if user code has taken such locks
 * in this transaction.  They may have been released then.
 */
extern void papply_session_locks_check_end(void);

/* Writer: release such locks after a rollback. */
extern void papply_session_locks_release(void);

#endif							/* PAPPLY_SESSION_LOCKS_H */
