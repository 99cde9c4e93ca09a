/*-------------------------------------------------------------------------
 * pace.c
 *	  When the connection is read while the publisher is ahead.
 *
 * Runs in the receiver, while there is a pool.
 *
 * A walsender sends each message by itself, and has two states.  While the reader
 * keeps up, each message passes through all of TCP as a segment of its own, and wakes
 * the reader.  While the reader's window is closed, a message is only copied to the end
 * of the send queue, where the kernel merges messages into full segments: that takes
 * half of the walsender's time for a transaction.  Each state keeps itself going, since
 * a slow reader makes a fast sender.  A receiver that takes each message at once gets the
 * expensive one, pays a system call and a wake-up for each message as well, and then the
 * walsender is what limits.  PostgreSQL's own apply is in the cheap state as long as
 * applying takes longer than sending.
 *
 * So while the publisher is ahead, the connection is left alone for a while when it has
 * been read empty, and writers live on what is in the queue.  The pause ends about when
 * the publisher has to stop, because the buffers between the two are full: a shorter one
 * would cost more wake-ups, in a longer one the publisher would be idle.  How much these
 * buffers hold depends on both kernels' settings, up to several megabytes, and on how
 * segments are merged.  But messages have send times, which tell how long before the end
 * of a pause the publisher stopped sending.  If that is a small part of the pause, the next
 * one is longer, else it is shorter.  A publisher that has nothing more to send stops as
 * well, so pauses end when it has caught up.
 * They are never longer than a part of what the publisher is behind, so nobody notices.
 * A Unix socket holds too little even for the shortest pause, some fifty small transactions,
 * and merges nothing: it is read at once.
 *
 * Our clock and the publisher's are not the same.  A message that was read when nothing
 * else was there has just arrived; the least difference of the two clocks then is that of
 * the clocks and the shortest transit.
 *
 * The receive buffer would grow, and hold megabytes of small segments, before the window
 * closes.  So it is limited to what the round trip requires.  Where that is much it is
 * left alone: then segments are merged while the window, of whatever size, is full.  So it
 * is where segments are large anyway, since the publisher gathers messages: that costs
 * nothing then, and the publisher is never idle.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#ifdef __linux__
#include <linux/tcp.h>			/* has more of tcp_info than netinet/tcp.h */
#endif
#include <netinet/in.h>
#include <sys/socket.h>

#include "clock.h"
#include "pace.h"

/* The first pause, and the shortest one; to go to sleep takes a tenth of that. */
#define MIN_PAUSE_US 300

/* Reports to the publisher and looks at blocked writers should not come later. */
#define MAX_PAUSE_US 50000

/* A pause is at most this part of what the publisher is behind. */
#define BEHIND_PART 4

/* The publisher may be idle for this part of a pause. */
#define IDLE_PART 4

/* A clock may be set, or drift: forget what is older. */
#define OFFSET_US (10 * USECS_PER_SEC)

/*
 * Bytes.  Less than the first one, some segments, would stall TCP where segments are as
 * large as on the loopback interface; above the second one, Linux grants no request by
 * default.
 */
#define MIN_WINDOW (64 * 1024)
#define MAX_WINDOW (208 * 1024)

/* Bytes.  Half of what fits into a segment on an Ethernet. */
#define LARGE_SEGMENT 700

/*
 * Bytes per second that are expected before a connection has shown them.  At first it is slow
 * (TCP's slow start), and what is set is final.
 */
#define EXPECTED_RATE 5e7

/* The rate is known after so many pauses. */
#define RATE_PAUSES 4

static PapplyPace current;
static int64 paused_at = 0;		/* of clock.h; 0: it was not */
static int	pauses = 0;
static double rate = 0;			/* greatest seen, bytes per second */
static int	window = 0;			/* as set; 0: it is the kernel's */

/*** pure ***/

void
papply_pace_read(PapplyPace *pace, int length, TimestampTz send_time)
{
	pace->bytes += length;
	pace->sent_at = send_time;
	if (pace->stopped_us >= 0 || pace->pause_us == 0 || pace->offset_since == 0)
		return;
	if (send_time <= pace->woke_at - pace->offset_us)
		pace->sent_before = send_time;
	else if (pace->sent_before != 0)
		pace->stopped_us = pace->woke_at - pace->offset_us - pace->sent_before;
	else
		pace->stopped_us = pace->pause_us;
}

static void
measure_offset(PapplyPace *pace, int64 now)
{
	int64		offset_us = now - pace->sent_at;

	if (pace->offset_since == 0 || now - pace->offset_since > OFFSET_US ||
		offset_us < pace->offset_us)
	{
		pace->offset_us = offset_us;
		pace->offset_since = now;
	}
}

/* It may not have sent anything since the pause. */
static int64
stopped_us(const PapplyPace *pace)
{
	if (pace->stopped_us >= 0)
		return pace->stopped_us;
	if (pace->sent_before == 0)
		return 0;
	return Max(0, pace->woke_at - pace->offset_us - pace->sent_before);
}

int64
papply_pace_next(PapplyPace *pace, int64 now, int64 behind_us)
{
	int64		max_us = Min(MAX_PAUSE_US, behind_us / BEHIND_PART);
	int64		idle_us = stopped_us(pace);

	if (pace->bytes == 0 || max_us < MIN_PAUSE_US)
	{
		pace->pause_us = 0;
		return 0;
	}
	measure_offset(pace, now);
	if (pace->pause_us == 0)
		pace->pause_us = MIN_PAUSE_US;
	else if (idle_us <= pace->pause_us / IDLE_PART)
		pace->pause_us += pace->pause_us / 2;
	else
		pace->pause_us -= Min(pace->pause_us, idle_us) / 2;
	pace->pause_us = Max(MIN_PAUSE_US, Min(max_us, pace->pause_us));
	pace->bytes = 0;
	return pace->pause_us;
}

void
papply_pace_woke(PapplyPace *pace, int64 now)
{
	pace->woke_at = now;
	pace->sent_before = 0;
	pace->stopped_us = -1;
}

int
papply_pace_window(int64 round_trip_us, double rate, int segment_bytes)
{
	double		needed = 2 * Max(rate, EXPECTED_RATE) * round_trip_us / USECS_PER_SEC;

	if (segment_bytes >= LARGE_SEGMENT || needed > MAX_WINDOW)
		return 0;
	return Max(MIN_WINDOW, (int) needed);
}

/*** receiver ***/

void
papply_pace_note(int length, TimestampTz send_time)
{
	papply_pace_read(&current, length, send_time);
}

/*
 * Of a TCP connection: its round trip in microseconds, and the mean length of the segments
 * that have come since this was asked last.  False: it is another one, or it is not known.
 */
static bool
ask_kernel(pgsocket socket, int64 *round_trip_us, int *segment_bytes)
{
#ifdef __linux__
	static uint64 bytes_before = 0;
	static uint32 segments_before = 0;
	struct tcp_info info;
	socklen_t	length = sizeof(info);
	uint32		segments;

	memset(&info, 0, sizeof(info));
	if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
		return false;
	*round_trip_us = info.tcpi_rcv_rtt > 0 ? Min(info.tcpi_rtt, info.tcpi_rcv_rtt) : info.tcpi_rtt;
	segments = info.tcpi_data_segs_in - segments_before;
	*segment_bytes = segments == 0 ? 0 : (info.tcpi_bytes_received - bytes_before) / segments;
	bytes_before = info.tcpi_bytes_received;
	segments_before = info.tcpi_data_segs_in;
	return true;
#else
	return false;
#endif
}

/*
 * Once it is set the kernel adapts it no more, so it may have to grow.  That segments are
 * large then is its effect.
 */
static void
limit_window(pgsocket socket)
{
	int64		round_trip_us;
	int			segment_bytes;
	int			needed;

	if (!ask_kernel(socket, &round_trip_us, &segment_bytes))
		return;
	needed = papply_pace_window(round_trip_us, rate, window == 0 ? segment_bytes : 0);
	if (needed == 0 && window != 0)
		needed = MAX_WINDOW;
	if (needed > window &&
		setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &needed, sizeof(needed)) == 0)
		window = needed;
}

/* Of the one connection that a process has. */
static bool
is_unix_socket(pgsocket socket)
{
	static int	family = -1;
	struct sockaddr_storage address;
	socklen_t	length = sizeof(address);

	if (family < 0)
		family = getsockname(socket, (struct sockaddr *) &address, &length) == 0 ?
			address.ss_family : AF_UNSPEC;
	return family == AF_UNIX;
}

int64
papply_pace_pause_us(pgsocket socket, int64 behind_us)
{
	int64		now = papply_clock_now();
	uint64		bytes = current.bytes;

	if (is_unix_socket(socket) || papply_pace_next(&current, now, behind_us) == 0)
	{
		paused_at = 0;
		return 0;
	}
	if (paused_at != 0 && now > paused_at)
	{
		rate = Max(rate, (double) bytes * USECS_PER_SEC / (now - paused_at));
		if (++pauses % RATE_PAUSES == 0)
			limit_window(socket);
	}
	paused_at = now;
	return current.pause_us;
}

void
papply_pace_end_pause(void)
{
	papply_pace_woke(&current, papply_clock_now());
}
