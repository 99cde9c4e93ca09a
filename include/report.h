/*-------------------------------------------------------------------------
 * room: receiver
 *
 * report.h
 *	  When the publisher is told how far we are.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REPORT_H
#define PAPPLY_REPORT_H

#include "replication/walreceiver.h"

/* More was received that the publisher may wait to hear of. */
extern void papply_report_received(void);

/* This process has committed, and no writer knows that it is to be flushed. */
extern void papply_report_committed(void);

/*
 * The publisher wants an answer, perhaps because somebody waits for a flush.  Returns true
 * if it is told soon without more.
 */
extern bool papply_report_flush(void);

/* It wants one from the native loop. */
extern void papply_report_asked(void);

/*
 * Asked before each message: must the native loop send a reply now, in the middle of
 * whatever is under way?  is_reading: this message comes from the connection, where the
 * publisher's questions are.  True means that it will.
 */
extern bool papply_report_must_reply(bool is_reading);

/* The publisher gives up a subscriber that is silent for so long; 0: never. */
extern void papply_report_set_timeout(int timeout_ms);

/*
 * While messages wait to be read, a status message is sent at least so often, and the
 * native loop gets a keepalive, before the publisher or that loop gives up.
 */
extern int	papply_report_silence_ms(void);

/* Shall it get one, or any status message of the native loop's? */
extern bool papply_report_may_answer(void);

/* Nothing more is to be read: flush if nobody else does, and tell what is new. */
extern void papply_report_now(WalReceiverConn *conn);

/* The same now and then, while there is more to read. */
extern void papply_report_if_due(WalReceiverConn *conn);

/* After so many milliseconds there may be more to tell; -1: that is not known. */
extern long papply_report_patience_ms(void);

#endif							/* PAPPLY_REPORT_H */
