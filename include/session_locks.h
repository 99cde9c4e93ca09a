/*-------------------------------------------------------------------------
 * room: pool
 *
 * session_locks.h
 *	  Advisory locks that code of the user keeps beyond its transaction.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_LOCKS_H
#define PAPPLY_SESSION_LOCKS_H

/*
 * Receiver, outside of a transaction: say to all whether its session keeps such locks.
 */
extern void papply_session_locks_note(void);

/* Does the receiver's session keep such locks? */
extern bool papply_session_locks_are_kept(void);

/* Writer: throw if the receiver's session keeps such locks.  Before code of the user runs. */
extern void papply_session_locks_check_begin(void);

/*
 * Writer: throw if code of the user has taken such locks in this transaction, which is
 * about to be committed.  The locks may be released already then.
 */
extern void papply_session_locks_check_end(void);

/* Writer: release such locks, which are left from what was rolled back. */
extern void papply_session_locks_release(void);

/* Writer, outside of a transaction: the same with what is left of a committed one, if any. */
extern void papply_session_locks_release_rest(void);

#endif							/* PAPPLY_SESSION_LOCKS_H */
