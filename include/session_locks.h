/*-------------------------------------------------------------------------
 * session_locks.h
 *	  Advisory locks that user code keeps beyond its transaction.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_LOCKS_H
#define PAPPLY_SESSION_LOCKS_H

/*
 * Receiver, outside of a transaction: publish whether its session keeps such
 * locks.
 */
extern void papply_session_locks_note(void);

/* Does the receiver's session keep such locks? */
extern bool papply_session_locks_are_kept(void);

/*
 * Writer: throw the error that leaves a transaction to the receiver.  Call it
 * before user code runs if the receiver's session keeps such locks.
 */
extern void papply_session_locks_refuse(void);

/*
 * Writer, before the commit: throw an error if user code has taken such locks
 * in this transaction.  They may have been released then.
 */
extern void papply_session_locks_check_end(void);

/* Writer: release such locks after a rollback. */
extern void papply_session_locks_release(void);

/* Writer, outside of a transaction: release what a committed one has left. */
extern void papply_session_locks_release_rest(void);

#endif							/* PAPPLY_SESSION_LOCKS_H */
