/*-------------------------------------------------------------------------
 * room: receiver
 *
 * pace.h
 *	  When the connection is read while the publisher is ahead.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PACE_H
#define PAPPLY_PACE_H

#include "datatype/timestamp.h"

/*
 * What is known of the connection.  Times are in microseconds: our own as of clock.h,
 * those of the publisher as of the send times of its messages.
 */
typedef struct PapplyPace
{
	int64		pause_us;		/* the last one; 0: there was none */
	int64		woke_at;		/* end of that */
	uint64		bytes;			/* read since it began */
	TimestampTz sent_at;		/* send time of the last message read */
	TimestampTz sent_before;	/* of the last one sent before woke_at */
	int64		stopped_us;		/* how long before woke_at the publisher
								 * stopped sending; -1: not known yet */
	int64		offset_us;		/* our clock minus the publisher's, with the
								 * transit of a message */
	int64		offset_since;	/* when that was measured first; 0: never */
} PapplyPace;

/*
 * Pure: note a message of that length (in bytes), return the next pause and note its end.
 * behind_us is the age of the newest transaction when the publisher sent it.
 */
extern void papply_pace_read(PapplyPace *pace, int length, TimestampTz send_time);
extern int64 papply_pace_next(PapplyPace *pace, int64 now, int64 behind_us);
extern void papply_pace_woke(PapplyPace *pace, int64 now);

/*
 * Pure: how many bytes may lie in the receive buffer so that a link with that round trip
 * loses nothing at that rate, in bytes per second, where segments have that mean length;
 * 0: leave that to the kernel.
 */
extern int	papply_pace_window(int64 round_trip_us, double rate, int segment_bytes);

/* Receiver: a message of that length was read; its send time is known. */
extern void papply_pace_note(int length, TimestampTz send_time);

/*
 * Receiver: there is nothing more to read.  Returns how long, in microseconds, the
 * connection should be left alone; 0: not at all.  A Unix socket never should.
 */
extern int64 papply_pace_pause_us(pgsocket socket, int64 behind_us);

/* Receiver: that pause is over. */
extern void papply_pace_end_pause(void);

#endif							/* PAPPLY_PACE_H */
