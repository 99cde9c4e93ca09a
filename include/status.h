/*-------------------------------------------------------------------------
 * room: receiver
 *
 * status.h
 *	  What the receiver shows of its subscription.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STATUS_H
#define PAPPLY_STATUS_H

#include "statistics.h"

/*
 * Once, before all else: errors of this process, the receiver of MySubscription, are
 * counted from now on.  What the one before it has shown stays.  No transaction is open.
 */
extern void papply_status_attach(void);

/* Then, when there is a connection: a new receiver, which begins to show what it does. */
extern void papply_status_init(void);

/* Who applies, and if that is not writers, why. */
extern void papply_status_set(PapplyApplyState state, PapplyApplyReason reason);

/*
 * Show positions, the queue and, once a second, rates.  While the native loop
 * sleeps it is called at least once a second, and else more often.  is_idle: all
 * that was received is committed.
 */
extern void papply_status_update(bool has_pool, bool is_idle);

/*
 * Without a pool: the native loop begins a transaction that was committed then
 * on the publisher, and has committed one that ends there (InvalidXLogRecPtr:
 * not known); or it tells the publisher positions, in a status message ('r').
 */
extern void papply_status_native_begin(TimestampTz commit_time);
extern void papply_status_native_end(XLogRecPtr remote_end_lsn);
extern void papply_status_native_feedback(const char *message, int length);

/*
 * A transaction that was committed then on the publisher waits for the end of a
 * pause; 0: none does.
 */
extern void papply_status_hold(TimestampTz commit_time);

#endif							/* PAPPLY_STATUS_H */
