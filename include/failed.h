/*-------------------------------------------------------------------------
 * room: receiver
 *
 * failed.h
 *	  The transaction that the apply worker has failed to apply.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAILED_H
#define PAPPLY_FAILED_H

#include "parallel_apply.h"

/*
 * The message that the native loop processes, up to the next time that it asks for one;
 * it must stay where it is until then.  NULL: none of a transaction.
 */
extern const char *papply_failed_message;
extern int	papply_failed_message_length;

static inline void
papply_failed_set_message(const char *message, int length)
{
	papply_failed_message = message;
	papply_failed_message_length = length;
}

/*
 * Where an error is logged: it is one of the transaction that the native loop applies.
 * Remember what the view shows of it.
 */
extern void papply_failed_note(const ErrorData *error);

#endif							/* PAPPLY_FAILED_H */
