/*-------------------------------------------------------------------------
 * pace.c
 *	  Decide when to read the connection while the publisher is ahead.
 *
 * Runs in the receiver, while there is a pool.
 *
 * A walsender sends each message by itself, and has two states.  While the
 * reader keeps up, each message passes through all of TCP as a segment of its
 * own, and wakes the reader.  While the reader's window is closed, a message
 * is only copied to the end of the send queue, where the kernel merges
 * messages into full segments; that takes half of the walsender's time per
 * transaction.  Each state is self-sustaining: a slow reader makes sending
 * cheap.  A receiver that reads each message at once keeps the walsender in
 * the expensive state, pays a system call and a wake-up per message itself,
 * and is limited by the walsender.  PostgreSQL's own apply is in the cheap
 * state as long as applying takes longer than sending.
 *
 * So while the publisher is ahead, the receiver leaves the connection alone
 * for a while after it has read it empty, and writers apply what is in the
 * queue.  The pause should end about when the publisher has to stop because
 * the buffers between the two are full.  A shorter pause would cost more
 * wake-ups; in a longer one the publisher would be idle.  The capacity of
 * these buffers depends on the settings of both kernels, up to several
 * megabytes, and on how segments are merged.  But messages have send times,
 * which tell how long before the end of a pause the publisher stopped sending.
 * If that is a small part of the pause, the next pause is longer, else it is
 * shorter.  A publisher that has nothing more to send stops as well, so pauses
 * end when it has caught up.  A pause is never longer than a part of the
 * publisher's lead, so it adds little to the lag.  A Unix socket is read at
 * once: it merges nothing, and holds too little even for the shortest pause,
 * some fifty small transactions.
 *
 * Our clock differs from the publisher's.  If a message was read when no other
 * was waiting, it has just arrived.  The smallest difference between our time
 * and the send time of such a message is the difference of the clocks plus the
 * shortest transit time.
 *
 * The receive buffer would grow, and hold megabytes of small segments, before
 * the window closes.  So its size is limited to what the round trip requires.
 * If that is large, the buffer is left alone; segments are merged then while
 * the window is full, whatever its size.  The buffer is also left alone if
 * segments are large anyway, because the publisher coalesces messages: that
 * costs nothing, and the publisher is never idle.
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

/* The first and shortest pause; falling asleep takes a tenth of that. */
#define MIN_PAUSE_US 300

/* Reports to the publisher and checks for blockers should not come later. */
#define MAX_PAUSE_US 50000

/* A pause is at most this part of the publisher's lead. */
#define BEHIND_PART 4

/* The publisher may be idle for this part of a pause. */
#define IDLE_PART 4

/* A clock may be set, or drift: an older measurement is discarded. */
#define OFFSET_US (10 * USECS_PER_SEC)

/*
 * Bytes.  A window below MIN_WINDOW, a few segments, would stall TCP where
 * segments are as large as on the loopback interface.  By default, Linux does
 * not grant more than MAX_WINDOW.
 */
#define MIN_WINDOW (64 * 1024)
#define MAX_WINDOW (208 * 1024)

/* Bytes; half of what fits into a segment on Ethernet. */
#define LARGE_SEGMENT 700

/*
 * Bytes per second to expect before a connection has shown its rate.  A
 * connection is slow at first (TCP's slow start), and the buffer size that is
 * set is never reduced.
 */
#define EXPECTED_RATE 5e7

/* The rate is known after this number of pauses. */
#define RATE_PAUSES 4

/* The connection of this process, the only one that is read. */
typedef struct Connection
{
	PapplyPace	pace;
	int64		paused_at;		/* 0: no pause */
	int			pauses;
	double		rate;			/* greatest seen, in bytes per second */
	int			window;			/* as set; 0: chosen by the kernel */
	int			family;			/* of addresses; -1: not known yet */
	uint64		bytes_before;	/* at the last call of ask_kernel() */
	uint32		segments_before;
} Connection;

static Connection connection = {.family = -1};

/*** pure ***/

void
papply_pace_read(PapplyPace *pace, int length, TimestampTz send_time)
{
	int64		before_us = pace->woke_at - pace->offset_us - send_time;

	pace->bytes += length;
	pace->sent_at = send_time;
	if (pace->is_settled || pace->pause_us == 0 || pace->offset_since == 0)
		return;
	pace->is_settled = before_us < 0;
	if (!pace->is_settled)
		pace->stopped_us = before_us;
	else if (pace->stopped_us < 0)
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

int64
papply_pace_next(PapplyPace *pace, int64 now, int64 behind_us)
{
	int64		max_us = Min(MAX_PAUSE_US, behind_us / BEHIND_PART);
	int64		idle_us = Max(0, pace->stopped_us);

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
	pace->stopped_us = -1;
	pace->is_settled = false;
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
	papply_pace_read(&connection.pace, length, send_time);
}

/*
 * Get the round trip of a TCP connection in microseconds, and the mean length
 * of the segments received since the last call.  Return false if the
 * connection is not TCP, or these are not known yet: what came before the first
 * call was another kind of load.
 */
static bool
ask_kernel(pgsocket socket, int64 *round_trip_us, int *segment_bytes)
{
#ifdef __linux__
	struct tcp_info info;
	socklen_t	length = sizeof(info);
	bool		is_first = connection.bytes_before == 0;
	uint32		segments;

	memset(&info, 0, sizeof(info));
	if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0)
		return false;
	*round_trip_us = info.tcpi_rcv_rtt > 0 ? Min(info.tcpi_rtt, info.tcpi_rcv_rtt) : info.tcpi_rtt;
	segments = info.tcpi_data_segs_in - connection.segments_before;
	*segment_bytes = segments == 0 ? 0 :
		(info.tcpi_bytes_received - connection.bytes_before) / segments;
	connection.bytes_before = info.tcpi_bytes_received;
	connection.segments_before = info.tcpi_data_segs_in;
	return !is_first;
#else
	return false;
#endif
}

/*
 * Limit the receive buffer.  Once its size has been set the kernel no longer
 * adapts it, so it may have to grow.  Large segments are then an effect of the
 * limit, and do not count.
 */
static void
limit_window(pgsocket socket)
{
	int64		round_trip_us;
	int			segment_bytes;
	int			needed;

	if (!ask_kernel(socket, &round_trip_us, &segment_bytes))
		return;
	needed = papply_pace_window(round_trip_us, connection.rate,
								connection.window == 0 ? segment_bytes : 0);
	if (needed == 0 && connection.window != 0)
		needed = MAX_WINDOW;
	if (needed > connection.window &&
		setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &needed, sizeof(needed)) == 0)
		connection.window = needed;
}

static bool
is_unix_socket(pgsocket socket)
{
	struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
	socklen_t	length = sizeof(address);

	if (connection.family < 0)
	{
		(void) getsockname(socket, (struct sockaddr *) &address, &length);
		connection.family = address.ss_family;
	}
	return connection.family == AF_UNIX;
}

int64
papply_pace_pause_us(pgsocket socket, int64 behind_us)
{
	int64		now = papply_clock_now();
	uint64		bytes = connection.pace.bytes;

	if (is_unix_socket(socket) || papply_pace_next(&connection.pace, now, behind_us) == 0)
	{
		connection.paused_at = 0;
		return 0;
	}
	if (connection.paused_at != 0 && now > connection.paused_at)
	{
		double		rate = (double) bytes * USECS_PER_SEC / (now - connection.paused_at);

		connection.rate = Max(connection.rate, rate);
		if (++connection.pauses % RATE_PAUSES == 0)
			limit_window(socket);
	}
	connection.paused_at = now;
	return connection.pace.pause_us;
}

void
papply_pace_end_pause(void)
{
	papply_pace_woke(&connection.pace, papply_clock_now());
}
