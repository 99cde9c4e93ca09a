/*-------------------------------------------------------------------------
 * single_session.h
 *	  Only the receiver's session runs user code any more.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SINGLE_SESSION_H
#define PAPPLY_SINGLE_SESSION_H

/*
 * From now on, until the apply worker ends, only the receiver may run user code.
 * Returns whether that is new in this pool.
 */
extern bool papply_single_session_begin(void);

/*
 * Receiver, before it ends a pool, and in the next one: what was so in the
 * former one is so in that one, too.
 */
extern void papply_single_session_carry_over(void);
extern void papply_single_session_resume(void);

/* May only the receiver run user code? */
extern bool papply_single_session_is_on(void);

/*
 * Writer: throw an error that leaves the transaction to the receiver if that
 * alone may run user code.
 */
extern void papply_single_session_check(void);

#endif							/* PAPPLY_SINGLE_SESSION_H */
