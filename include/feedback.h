/*-------------------------------------------------------------------------
 * room: receiver
 *
 * feedback.h
 *	  Positions that the publisher is told.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FEEDBACK_H
#define PAPPLY_FEEDBACK_H

#include "replication/walreceiver.h"

#include "parallel_apply.h"

/*
 * A pool starts: everything received so far, and everything up to start_lsn,
 * is committed and flushed.
 */
extern void papply_feedback_reset(XLogRecPtr start_lsn);

/* The publisher has sent everything up to there (publisher's WAL). */
extern void papply_feedback_received(XLogRecPtr remote_lsn);
extern XLogRecPtr papply_feedback_received_lsn(void);

/*
 * A transaction is committed: its end in the publisher's WAL, and the end of
 * the local commit, 0 if there was none.  In commit order.
 */
extern void papply_feedback_committed(XLogRecPtr remote_end_lsn, XLogRecPtr local_end_lsn);

/*
 * Up to where is everything applied?  is_idle: all that was received is
 * committed.
 */
extern XLogRecPtr papply_feedback_applied_lsn(bool is_idle);

/* Up to where is everything flushed, as far as was looked? */
extern XLogRecPtr papply_feedback_flushed_lsn(bool is_idle);

/* Do commits wait for the subscriber's own synchronous standbys? */
extern bool papply_feedback_waits_for_standbys(void);

/* Is there a commit that is neither flushed nor, if wanted, on standbys? */
extern bool papply_feedback_has_unflushed(void);

/*
 * Flush what is committed and, as the subscription's synchronous_commit wants
 * it, wait for the subscriber's own synchronous standbys.  may_delegate: leave
 * it to a writer, if one is free.
 */
extern void papply_feedback_flush(bool may_delegate);

/* The same wait for what is flushed already, by whomever. */
extern void papply_feedback_sync_earlier(void);

/* If the message is a status message ('r'), put the true positions into it. */
extern void papply_feedback_rewrite(char *buf, int length, bool is_idle);

/* What the native loop says in a status message; false: it is none. */
extern bool papply_feedback_parse(const char *buf, int length,
								  XLogRecPtr *flushed_lsn, XLogRecPtr *applied_lsn);

/*
 * Send a status message if the applied or flushed position has moved since the
 * last one, or also_received, by the server's own function.  It has all three.
 * Returns false if nothing was sent though it may be.
 */
extern bool papply_feedback_send(WalReceiverConn *conn, walrcv_send_fn send, bool is_idle,
								 bool also_received);

#endif							/* PAPPLY_FEEDBACK_H */
