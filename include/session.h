/*-------------------------------------------------------------------------
 * room: writer
 *
 * session.h
 *	  Who a writer is in its database, and what its subscription says.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_H
#define PAPPLY_SESSION_H

#include "parallel_apply.h"

/* Once: connect as the native worker does, with its user and role, and an empty search_path. */
extern void papply_session_connect(void);

/*
 * Read the subscription (MySubscription) anew if it may have changed; outside of
 * a transaction.  False: it was dropped.
 */
extern bool papply_session_load_subscription(void);

/*
 * Has it not changed since, as far as invalidations have been accepted?  Outside of a
 * transaction, false if it is not known.
 */
extern bool papply_session_is_current(void);

/* May writers apply its next transaction, as far as it and the sessions before say? */
extern bool papply_session_suits_writers(void);

#endif							/* PAPPLY_SESSION_H */
