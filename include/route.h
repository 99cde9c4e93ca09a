/*-------------------------------------------------------------------------
 * room: receiver
 *
 * route.h
 *	  Who gets a message of the publisher.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROUTE_H
#define PAPPLY_ROUTE_H

/* What is to be done with a received message. */
typedef enum PapplyRoute
{
	PAPPLY_ROUTE_DONE,			/* nothing more */
	PAPPLY_ROUTE_SPOOLED,		/* nothing more; go on with what was spooled */
	PAPPLY_ROUTE_NATIVE,		/* return it to the native loop */
	PAPPLY_ROUTE_BEFORE,		/* return another one first, then offer it
								 * again */
	PAPPLY_ROUTE_HOLD			/* offer it again later */
} PapplyRoute;

/*
 * Route a message as received; it must stay where it is until it need not be offered
 * again.  With NATIVE and BEFORE, *buffer and *length become what the native loop
 * is to get.
 */
extern PapplyRoute papply_route_message(char **buffer, int *length);

/*
 * Asked before each message that the native loop gets from elsewhere: must the publisher
 * get a reply first?  Returns the length of a message that makes the native loop send it, or 0.
 */
extern int	papply_route_reply(bool is_reading, char **buffer);

/* Neither the native loop nor the queue is in the middle of a transaction. */
extern bool papply_route_is_between_transactions(void);

#endif							/* PAPPLY_ROUTE_H */
