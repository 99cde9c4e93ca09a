/*-------------------------------------------------------------------------
 * session.h
 *	  The identity of a writer in its database, and its subscription.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SESSION_H
#define PAPPLY_SESSION_H

#include "parallel_apply.h"

/*
 * Call once.  Connects as the core apply loop does, with its user, role and
 * settings, and an empty search_path.
 */
extern void papply_session_connect(void);

/*
 * Read the subscription (MySubscription) again if it may have changed.  Must
 * be called outside of a transaction.  Returns false if the subscription was
 * dropped.
 */
extern bool papply_session_load_subscription(void);

/*
 * Is the subscription unchanged since then, as far as invalidations have been
 * accepted?  Returns false outside of a transaction if that is not known.
 */
extern bool papply_session_is_current(void);

/*
 * May writers apply the next transaction, as far as the subscription and
 * session_replication_role are concerned?
 */
extern bool papply_session_suits_writers(void);

#endif							/* PAPPLY_SESSION_H */
