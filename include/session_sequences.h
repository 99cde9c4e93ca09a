/*-------------------------------------------------------------------------
 * session_sequences.h
 *	  What a session remembers of sequences that user code uses.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_SEQUENCES_H
#define PAPPLY_SESSION_SEQUENCES_H

/*
 * After a transaction that may have run user code: forget the last numbers,
 * except if all user code runs in this session.
 */
extern void papply_session_sequences_forget(void);

/*
 * Writer, before the commit: throw an error if user code has used a sequence
 * with a cache in this transaction.
 */
extern void papply_session_sequences_check_end(void);

#endif							/* PAPPLY_SESSION_SEQUENCES_H */
