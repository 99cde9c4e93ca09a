/*-------------------------------------------------------------------------
 * report.h
 *	  Decide when to report positions to the publisher.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REPORT_H
#define PAPPLY_REPORT_H

#include "replication/walreceiver.h"

/* Note that more was received that the publisher may wait to know. */
extern void papply_report_received(void);

/* This process has committed, and no writer knows that a flush is due. */
extern void papply_report_committed(void);

/*
 * The publisher has requested a reply, perhaps because a session waits for a
 * flush.  Return true if it gets one soon without a reply of the core apply
 * loop.
 */
extern bool papply_report_flush(void);

/* The publisher's request is passed to the core apply loop. */
extern void papply_report_asked(void);

/*
 * Must the core apply loop send a reply now, in the middle of whatever is under
 * way?  Called before each message that it gets.  is_reading: the message comes
 * from the connection, where the publisher's requests are.  If the result is
 * true, the caller makes the core apply loop send the reply.
 */
extern bool papply_report_must_reply(bool is_reading);

/* Set the publisher's wal_sender_timeout; 0: none, or not known. */
extern void papply_report_set_timeout(int timeout_ms);

/*
 * Return the longest time without a status message to the publisher, and
 * without a keepalive to the core apply loop, while messages wait to be read.
 * It is short enough for both timeouts.
 */
extern int	papply_report_silence_ms(void);

/*
 * May the core apply loop's status messages be sent, and be requested from it?
 * See report.c.
 */
extern bool papply_report_may_answer(void);

/*
 * There is nothing more to read: flush if no other process does, and report
 * what is new.  is_slow is that of papply_due_flush_look().  Returns after how many
 * milliseconds there may be more to report; -1: not known.
 */
extern long papply_report_now(WalReceiverConn *conn, bool is_slow);

/* Do the same from time to time while there is more to read. */
extern void papply_report_if_due(WalReceiverConn *conn);

#endif							/* PAPPLY_REPORT_H */
