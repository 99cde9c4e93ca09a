/*-------------------------------------------------------------------------
 * session_state.h
 *	  What user code leaves in its session for later transactions, and what it
 *	  finds there at first.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_STATE_H
#define PAPPLY_SESSION_STATE_H

#include "port/atomics.h"

#include "parallel_apply.h"

/* Part of the pool. */
typedef struct PapplySharedSession
{
	pg_atomic_uint32 is_single; /* does only the receiver run user code? */
	pg_atomic_uint32 has_settings;	/* does the receiver's session keep
									 * settings? */
	pg_atomic_uint32 replication_role;	/* replication_role.c */
	uint32		settings_version;	/* first_settings.c; set before writers
									 * start; 0: none */
} PapplySharedSession;

/* May only the receiver run user code, until the apply worker ends? */
extern bool papply_single_session_is_on(void);

/*
 * Writer: throw an error that leaves the transaction to the receiver if that
 * alone may run user code.
 */
extern void papply_single_session_check(void);

/*
 * Receiver, outside of a transaction: if its session keeps advisory locks, it
 * alone runs user code from now on.  Publish whether it has settings or
 * temporary tables.
 */
extern void papply_session_locks_note(void);
extern void papply_session_settings_note(void);

/* Return whether the receiver's session has such settings or tables. */
extern bool papply_session_settings_exist(void);

/*
 * Before the commit of a transaction that may have run user code: if it has used a
 * sequence with a cache, the receiver alone runs user code from now on.
 */
extern void papply_session_sequences_note(void);

/*
 * After a transaction that may have run user code: forget the last numbers of
 * sequences, except if all user code runs in this session.
 */
extern void papply_session_sequences_forget(void);

/*
 * Receiver: remember before a pool ends whether it alone may run user code, and
 * restore this in the next one, with what its session keeps.
 */
extern void papply_session_state_carry_over(void);
extern void papply_session_state_resume(void);

/*
 * Writer, before the commit: throw an error if user code has left anything in
 * the session in this transaction.
 */
extern void papply_session_state_check_end(void);

/* Writer: forget and release what is left after a rollback. */
extern void papply_session_state_abort(void);

/*** the settings that the session of the apply worker begins with: first_settings.c ***/

/* Receiver: call once, before user code can run. */
extern void papply_first_settings_note(void);

/* Receiver: provide them for the writers of a pool, when its registry is empty. */
extern void papply_first_settings_share(void);

/*
 * Writer: replace all settings, outside of a transaction.  The caller must
 * reload the configuration files when ConfigReloadPending is set.
 */
extern void papply_first_settings_take(void);

#endif							/* PAPPLY_SESSION_STATE_H */
