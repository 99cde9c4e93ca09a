/*
 * delay_link.c
 *		A link with a round trip: passes packets between two network devices, in
 *		either direction, each of them some time after it has come.
 *
 *		delay_link DEVICE DEVICE MICROSECONDS
 *
 * It stands for a cable of that length.  What is passed are packets and not the bytes
 * of a connection: TCP runs between the two servers, and everything in it is as on a
 * real line.  A sender has no more under way than the receiver's window, and its own
 * congestion window, permit; that window covers the whole way, so that a receiver
 * with a small buffer slows a long link down, as it would; both ends measure the round
 * trip (TCP_INFO), timers and acknowledgments work by it.  A program that forwarded
 * connections would hide all of it: each end would have a window of its own, to a
 * neighbor without delay.
 *
 * What is modeled: a constant delay, the same both ways, whatever the size and the
 * number of packets; any bandwidth; packets stay in order.
 *
 * What is not: a limit of bandwidth, loss, jitter, other traffic, the queue of a
 * router.  A packet waits a little longer than it should, by the time until this
 * program runs: some ten microseconds, more when all processors are busy, and it
 * takes a part of them that a real line would not.  So compare round trips with each
 * other, with 0 as the base, and not with a link without this program.  Large
 * packets are passed whole, as the sender handed them to its device (segmentation
 * offload); a real network card cuts them.
 *
 * At most QUEUE_BYTES are under way in a direction, more than the receive buffer of a
 * few connections.  What comes beyond that waits in the socket and then is lost, as
 * in a router that is full.
 *
 * Works in the network namespace of both devices, and needs CAP_NET_RAW and, for
 * large buffers, CAP_NET_ADMIN there.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_BYTES (64 << 20)

/* The largest packet, with its headers and what the kernel says of it. */
#define PACKET_BYTES (sizeof(struct virtio_net_hdr) + 66000)

/* So many are taken from one side before the other one gets its turn. */
#define PACKETS_AT_ONCE 64

#define NS_PER_S 1000000000

/* In front of each packet of a queue. */
typedef struct Packet
{
	int64_t		due_ns;
	size_t		bytes;
} Packet;

/*
 * One direction.  Packets are one behind the other in "memory", none is wrapped: when
 * there is no room for the largest at the end, the next one is at the beginning, and
 * "end" is where the last one before it ended.
 */
typedef struct Direction
{
	int			from;
	int			to;
	char	   *memory;
	size_t		head;			/* the oldest packet */
	size_t		tail;			/* behind the newest one */
	size_t		end;			/* if tail < head */
	size_t		packets;
} Direction;

static int64_t delay_ns;

static int64_t
now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* A socket for all packets that come in at this device, and for sending there. */
static int
open_device(const char *name)
{
	int			fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL));
	int			on = 1;
	int			buffer_bytes = QUEUE_BYTES / 2;	/* the kernel doubles it */
	struct sockaddr_ll address = {
		.sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = if_nametoindex(name)
	};
	struct packet_mreq everything = {
		.mr_ifindex = address.sll_ifindex,
		.mr_type = PACKET_MR_PROMISC
	};

	if (address.sll_ifindex == 0)
		err(1, "device \"%s\"", name);
	if (fd < 0 ||
		setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
		setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
		setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes)) != 0 ||
		setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof(buffer_bytes)) != 0 ||
		bind(fd, (struct sockaddr *) &address, sizeof(address)) != 0 ||
		setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &everything, sizeof(everything)) != 0)
		err(1, "packet socket of \"%s\"", name);
	return fd;
}

static Direction
make_direction(int from, int to)
{
	Direction	direction = {.from = from, .to = to};

	direction.memory = mmap(NULL, QUEUE_BYTES, PROT_READ | PROT_WRITE,
							MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (direction.memory == MAP_FAILED)
		err(1, "memory");
	return direction;
}

/* Of a packet of so many bytes: the next one is aligned. */
static size_t
size_in_queue(size_t bytes)
{
	return sizeof(Packet) + (bytes + sizeof(int64_t) - 1) / sizeof(int64_t) * sizeof(int64_t);
}

/* Where the next packet, of any size, may be; NULL = there is no room. */
static Packet *
room_for_packet(Direction *direction)
{
	const size_t needed = sizeof(Packet) + PACKET_BYTES;

	if (direction->packets == 0)
		direction->head = direction->tail = 0;
	if (direction->tail >= direction->head && QUEUE_BYTES - direction->tail < needed)
	{
		if (direction->head <= needed)
			return NULL;
		direction->end = direction->tail;
		direction->tail = 0;
	}
	/* The tail never reaches the head from behind: equal means empty. */
	if (direction->tail < direction->head && direction->head - direction->tail <= needed)
		return NULL;
	return (Packet *) (direction->memory + direction->tail);
}

/* Take what has come. */
static void
receive_packets(Direction *direction)
{
	for (int i = 0; i < PACKETS_AT_ONCE; i++)
	{
		Packet	   *packet = room_for_packet(direction);
		ssize_t		bytes;

		if (packet == NULL)
			return;
		/* The whole size, even if it is cut: such a packet is not passed. */
		bytes = recv(direction->from, packet + 1, PACKET_BYTES, MSG_TRUNC);
		if (bytes < 0)
		{
			if (errno != EAGAIN && errno != EINTR && errno != ENETDOWN)
				err(1, "recv");
			return;
		}
		if (bytes > (ssize_t) PACKET_BYTES)
			continue;
		packet->due_ns = now_ns() + delay_ns;
		packet->bytes = bytes;
		direction->tail += size_in_queue(bytes);
		direction->packets++;
	}
}

/* The oldest packet, if there is one. */
static Packet *
oldest_packet(Direction *direction)
{
	if (direction->packets == 0)
		return NULL;
	if (direction->tail < direction->head && direction->head == direction->end)
		direction->head = 0;
	return (Packet *) (direction->memory + direction->head);
}

/*
 * Send what is due.  If the device takes nothing at this moment, the packet is lost,
 * which is what happens to it in a network.
 */
static void
send_packets(Direction *direction, int64_t now)
{
	Packet	   *packet;

	while ((packet = oldest_packet(direction)) != NULL && packet->due_ns <= now)
	{
		if (send(direction->to, packet + 1, packet->bytes, 0) < 0 &&
			errno != EAGAIN && errno != EINTR && errno != ENOBUFS && errno != ENETDOWN)
			err(1, "send");
		direction->head += size_in_queue(packet->bytes);
		direction->packets--;
	}
}

/* Until something comes or is due. */
static void
wait_for_packets(Direction *directions)
{
	struct pollfd sockets[2];
	struct timespec timeout = {0, 0};
	int64_t		due_ns = INT64_MAX;

	for (int i = 0; i < 2; i++)
	{
		Packet	   *packet = oldest_packet(&directions[i]);

		if (packet && packet->due_ns < due_ns)
			due_ns = packet->due_ns;
		sockets[i].fd = directions[i].from;
		sockets[i].events = room_for_packet(&directions[i]) ? POLLIN : 0;
	}
	if (due_ns != INT64_MAX)
	{
		int64_t		wait_ns = due_ns - now_ns();

		if (wait_ns > 0)
		{
			timeout.tv_sec = wait_ns / NS_PER_S;
			timeout.tv_nsec = wait_ns % NS_PER_S;
		}
	}
	if (ppoll(sockets, 2, due_ns == INT64_MAX ? NULL : &timeout, NULL) < 0 && errno != EINTR)
		err(1, "ppoll");
}

int
main(int argc, char **argv)
{
	Direction	directions[2];
	int			devices[2];
	char	   *rest;

	if (argc != 4)
		errx(2, "usage: delay_link DEVICE DEVICE MICROSECONDS");
	delay_ns = strtoll(argv[3], &rest, 10) * 1000;
	if (*rest || rest == argv[3] || delay_ns < 0)
		errx(2, "not a number of microseconds: %s", argv[3]);
	/* Nothing is left when who has started this is gone. */
	prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
	/* The default of 50 us would be a fifth of a short delay. */
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);

	for (int i = 0; i < 2; i++)
		devices[i] = open_device(argv[1 + i]);
	for (int i = 0; i < 2; i++)
		directions[i] = make_direction(devices[i], devices[1 - i]);
	while (true)
	{
		for (int i = 0; i < 2; i++)
			receive_packets(&directions[i]);
		for (int i = 0; i < 2; i++)
			send_packets(&directions[i], now_ns());
		wait_for_packets(directions);
	}
}
