/*-------------------------------------------------------------------------
 * route.h
 *	  Decide where a message of the publisher goes.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROUTE_H
#define PAPPLY_ROUTE_H

#include "fate.h"

/*
 * Route a received message.  The caller keeps it in place until it need not be
 * offered again.  With TO_CORE_LOOP and OTHER_FIRST, *buffer and *length are set
 * to the message that the core apply loop must get.
 */
extern PapplyFate papply_route_message(char **buffer, int *length);

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
