/*-------------------------------------------------------------------------
 * pace.h
 *	  Decide when to read the connection while the publisher is ahead.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PACE_H
#define PAPPLY_PACE_H

#include "datatype/timestamp.h"

/*
 * What is known about the connection.  Times are in microseconds.  Our own
 * times are those of clock.h; the publisher's are the send times of its
 * messages.
 */
typedef struct PapplyPace
{
	int64		pause_us;		/* the last pause; 0: none */
	int64		woke_at;		/* end of that pause */
	uint64		bytes;			/* read since it began */
	TimestampTz sent_at;		/* send time of the last message read */
	int64		stopped_us;		/* how long before woke_at the publisher
								 * stopped sending, as far as is known; -1: no
								 * message sent before woke_at was read */
	bool		is_settled;		/* it is: one sent after woke_at was read */
	int64		offset_us;		/* our clock minus the publisher's, plus the
								 * transit time of a message */
	int64		offset_since;	/* when offset_us was first measured; 0: never */
} PapplyPace;

/*
 * Pure: note a message of that length in bytes; return the next pause, 0 for
 * none; note the end of the pause.  behind_us is the age of the newest
 * transaction when the publisher sent it.
 */
extern void papply_pace_read(PapplyPace *pace, int length, TimestampTz send_time);
extern int64 papply_pace_next(PapplyPace *pace, int64 now, int64 behind_us);
extern void papply_pace_woke(PapplyPace *pace, int64 now);

/*
 * Pure: return the number of bytes that the receive buffer must hold so that a
 * link with that round trip is used fully at that rate, in bytes per second,
 * with segments of that mean length. 0: leave the size to the kernel.
 */
extern int	papply_pace_window(int64 round_trip_us, double rate, int segment_bytes);

/* Note that a message of that length was read. */
extern void papply_pace_note(int length, TimestampTz send_time);

/*
 * There is nothing more to read.  Return how long, in microseconds, to leave
 * the connection alone; 0: not at all.  The result is always 0 for a Unix
 * socket.
 */
extern int64 papply_pace_pause_us(pgsocket socket, int64 behind_us);

/* That pause is over. */
extern void papply_pace_end_pause(void);

#endif							/* PAPPLY_PACE_H */
