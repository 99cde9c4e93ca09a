/*-------------------------------------------------------------------------
 * room: sender
 *
 * ask.h
 *	  A walsender asks for a flush that a backend waits for.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ASK_H
#define PAPPLY_ASK_H

/* A keepalive, without the type of its CopyData message. */
#define PAPPLY_ASK_LENGTH (1 + 2 * sizeof(uint64) + 1)

/* The end of a transaction is about to be sent: somebody may wait for it. */
extern void papply_ask_put(void);

/* What is sent next are no changes: then there is nobody to be asked. */
extern void papply_ask_forget(void);

/* Does somebody, and has the subscriber not been asked since? */
extern bool papply_ask_is_due(void);

/* The message that asks, which the caller sends. */
extern void papply_ask_make(char message[PAPPLY_ASK_LENGTH]);

#endif							/* PAPPLY_ASK_H */
