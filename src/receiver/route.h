/*-------------------------------------------------------------------------
 * route.h
 *	  Decide where a message of the publisher goes.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROUTE_H
#define PAPPLY_ROUTE_H

/* What to do with a received message. */
typedef enum PapplyRoute
{
	PAPPLY_ROUTE_DONE,			/* nothing more */
	PAPPLY_ROUTE_NATIVE,		/* return it to the core apply loop */
	PAPPLY_ROUTE_BEFORE,		/* return another message first, then offer
								 * this one again */
	PAPPLY_ROUTE_HOLD			/* offer it again later */
} PapplyRoute;

/*
 * Route a received message.  The caller keeps it in place until it need not be
 * offered again.  With NATIVE and BEFORE, *buffer and *length are set to the
 * message that the core apply loop must get.
 */
extern PapplyRoute papply_route_message(char **buffer, int *length);

/*
 * Must the publisher get a reply before the core apply loop gets its next
 * message from elsewhere?  Return the length of a message that makes the core
 * apply loop send the reply, or 0. is_reading: the next message comes from the
 * connection.
 */
extern int	papply_route_reply(bool is_reading, char **buffer);

/*
 * Make space for a held message, or drain the pool for it.  Return true if the message may
 * be offered again at once.
 */
extern bool papply_route_make_space(void);

/* Is no transaction open in the core apply loop, the spool and the queue? */
extern bool papply_route_is_between_transactions(void);

#endif							/* PAPPLY_ROUTE_H */
