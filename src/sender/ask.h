/*-------------------------------------------------------------------------
 * ask.h
 *	  Ask the subscriber for a flush that a backend waits for.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ASK_H
#define PAPPLY_ASK_H

/* A keepalive, without the type of its CopyData message. */
#define PAPPLY_ASK_LENGTH (1 + 2 * sizeof(uint64) + 1)

/* Note that the end of a transaction is about to be sent, for which a backend may wait. */
extern void papply_ask_put(void);

/* Note that the messages that follow are not changes, so no flush can be requested. */
extern void papply_ask_forget(void);

/* Does a backend wait, and has the subscriber not been asked since? */
extern bool papply_ask_is_due(void);

/* Make the message that asks for a flush.  The caller sends it. */
extern void papply_ask_make(char message[PAPPLY_ASK_LENGTH]);

#endif							/* PAPPLY_ASK_H */
