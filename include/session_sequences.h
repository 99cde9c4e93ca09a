/*-------------------------------------------------------------------------
 * session_sequences.h
 *	  What a session remembers of sequences that user code uses.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_SEQUENCES_H
#define PAPPLY_SESSION_SEQUENCES_H

/*
 * Return whether the receiver's session alone may run user code, because that
 * uses a sequence with a cache.
 */
extern bool papply_session_sequences_are_kept(void);

/*
 * After a transaction that may have run user code: forget the last numbers,
 * except if they are kept.
 */
extern void papply_session_sequences_forget(void);

/*
 * Writer: throw the error that leaves a transaction to the receiver.  Call it
 * before user code runs if the receiver's session alone may run it.
 */
extern void papply_session_sequences_refuse(void);

/*
 * Writer, before the commit: throw an error if user code has used a sequence
 * with a cache in this transaction.
 */
extern void papply_session_sequences_check_end(void);

#endif							/* PAPPLY_SESSION_SEQUENCES_H */
