/*-------------------------------------------------------------------------
 * status.h
 *	  Show the state of a subscription.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STATUS_H
#define PAPPLY_STATUS_H

#include "statistics.h"

/*
 * Begin to count errors of this process, the receiver of MySubscription.  What
 * the previous receiver has shown stays.  Call this first; no transaction is
 * open.
 */
extern void papply_status_attach(void);

/* Begin to show the state; call this when there is a connection. */
extern void papply_status_init(void);

/* Set who applies changes and, if that is not writers, why. */
extern void papply_status_set(PapplyApplyState state, PapplyApplyReason reason);

/*
 * Show positions, the queue and, once per second, rates.  Called at least once
 * per second while the core apply loop sleeps, and more often otherwise.
 * is_idle:  all that was received is committed.
 */
extern void papply_status_update(bool has_pool, bool is_idle);

/*
 * The newest transaction that was received has this commit time on the
 * publisher, and was sent with the latest message (papply_connection_last).
 */
extern void papply_status_received(TimestampTz commit_time);

/*
 * Without a pool: the core apply loop sends a status message ('r') to the
 * publisher.
 */
extern void papply_status_native_feedback(const char *message, int length);

/*
 * A transaction with this commit time on the publisher waits for the end of a
 * pause; 0: none does.
 */
extern void papply_status_hold(TimestampTz commit_time);

#endif							/* PAPPLY_STATUS_H */
