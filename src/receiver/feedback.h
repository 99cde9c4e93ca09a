/*-------------------------------------------------------------------------
 * feedback.h
 *	  Keep the positions that are reported to the publisher.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FEEDBACK_H
#define PAPPLY_FEEDBACK_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/*
 * Start a pool: everything received so far, and everything up to start_lsn, is
 * committed and flushed.
 */
extern void papply_feedback_reset(XLogRecPtr start_lsn);

/*
 * Note that the publisher has sent everything up to there (publisher's WAL).
 */
extern void papply_feedback_received(XLogRecPtr remote_lsn);
extern XLogRecPtr papply_feedback_received_lsn(void);

/*
 * Note that a transaction is committed: its end in the publisher's WAL, and
 * the end of the local commit, 0 if there is none.  Called in commit order.
 */
extern void papply_feedback_committed(XLogRecPtr remote_end_lsn, XLogRecPtr local_end_lsn);

/*
 * Return the position up to which everything is applied. is_idle: all that was
 * received is committed.
 */
extern XLogRecPtr papply_feedback_applied_lsn(bool is_idle);

/* Return the position up to which everything was flushed at the last check. */
extern XLogRecPtr papply_feedback_flushed_lsn(bool is_idle);

/* Do commits wait for the subscriber's own synchronous standbys? */
extern bool papply_feedback_waits_for_standbys(void);

/* Is there a commit that is not flushed or, if wanted, not on standbys? */
extern bool papply_feedback_has_unflushed(void);

/*
 * Flush what is committed and, if the subscription's synchronous_commit says
 * so, wait for the subscriber's own synchronous standbys. may_delegate: leave
 * the flush to a writer, if one is free.
 */
extern void papply_feedback_flush(bool may_delegate);

/* Wait likewise for what is already flushed. */
extern void papply_feedback_sync_earlier(void);

/*
 * Return a status message ('r') with the true positions in place of those that
 * the core apply loop knows, valid until the next call; any other message as
 * it is.  Throw an error if a status message has a form that is not known: to
 * let it pass might confirm a flush that has not happened.  Throw one as well
 * if the core apply loop knows a position up to which changes are not applied.
 */
extern const char *papply_feedback_rewrite(const char *buf, int length, bool is_idle);

/*
 * Get the positions from a status message of the core apply loop.  Return
 * false if the message is none.
 */
extern bool papply_feedback_parse(const char *buf, int length,
								  XLogRecPtr *flushed_lsn, XLogRecPtr *applied_lsn);

/*
 * Send a status message, with all three positions, by the given function of
 * the server.  Do so only if the applied or flushed position has moved since
 * the last one, or if also_received.  Return whether a message was sent.
 */
extern bool papply_feedback_send(WalReceiverConn *conn, walrcv_send_fn send, bool is_idle,
								 bool also_received);

#endif							/* PAPPLY_FEEDBACK_H */
