/*
 * read_delay.c
 *		Makes the storage of one server slow: a library for LD_PRELOAD.
 *
 * Every read of data pages waits READ_DELAY_US microseconds, every flush of WAL
 * FLUSH_DELAY_US.  The files themselves stay in the operating system's cache, so
 * together with a small shared_buffers this gives storage with a known, constant
 * latency on any machine, without devices or privileges.  It is storage of
 * unlimited parallelism: waits of several processes overlap, nothing queues.
 *
 * Only pages of relation files count: reads of a multiple of 8192 bytes from
 * below base/, global/ or pg_tblspc/.  A vectored read is one request to the
 * storage and waits once.
 *
 * READ_DELAY_SWITCH names a file; delays happen only while it exists.  So a
 * server can be loaded and checked at full speed and measured in between.
 *
 * A delayed WAL flush does not flush: it stands for a device of that latency, not
 * for that latency on top of this machine's.  For throwaway data only.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 8192

typedef ssize_t (*pread_function) (int, void *, size_t, off_t);
typedef ssize_t (*pread64_function) (int, void *, size_t, off64_t);
typedef ssize_t (*preadv_function) (int, const struct iovec *, int, off_t);
typedef ssize_t (*preadv64_function) (int, const struct iovec *, int, off64_t);
typedef int (*flush_function) (int);

static pread_function real_pread;
static pread64_function real_pread64;
static preadv_function real_preadv;
static preadv64_function real_preadv64;
static flush_function real_fdatasync;
static flush_function real_fsync;

static long read_delay_us;
static long flush_delay_us;
static const char *switch_path;

static long
microseconds_from_environment(const char *name)
{
	const char *value = getenv(name);

	return value ? atol(value) : 0;
}

/*
 * Runs in the postmaster; its children inherit all of it, the timer slack too.
 * The default slack of 50 us would be a tenth of a usual delay.
 */
__attribute__((constructor))
static void
read_delay_init(void)
{
	real_pread = (pread_function) dlsym(RTLD_NEXT, "pread");
	real_pread64 = (pread64_function) dlsym(RTLD_NEXT, "pread64");
	real_preadv = (preadv_function) dlsym(RTLD_NEXT, "preadv");
	real_preadv64 = (preadv64_function) dlsym(RTLD_NEXT, "preadv64");
	real_fdatasync = (flush_function) dlsym(RTLD_NEXT, "fdatasync");
	real_fsync = (flush_function) dlsym(RTLD_NEXT, "fsync");

	read_delay_us = microseconds_from_environment("READ_DELAY_US");
	flush_delay_us = microseconds_from_environment("FLUSH_DELAY_US");
	/* A copy: the server reuses the memory of its environment for ps. */
	if (getenv("READ_DELAY_SWITCH"))
		switch_path = strdup(getenv("READ_DELAY_SWITCH"));
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
}

/* Sleep the whole time, whatever signals come: a disk is not interrupted. */
static void
delay(long us)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += us * 1000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

static bool
is_switched_on(void)
{
	return switch_path == NULL || access(switch_path, F_OK) == 0;
}

/* Is one of the directories, each written "/name/", in the path of this file? */
static bool
is_below(int fd, const char *const *directories)
{
	char		link[64];
	char		path[PATH_MAX];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return false;
	path[length] = '\0';
	for (; *directories; directories++)
	{
		if (strstr(path, *directories))
			return true;
	}
	return false;
}

/* errno is the server's; a delay must not change it. */
static void
delay_read(int fd, size_t bytes)
{
	static const char *const directories[] = {"/base/", "/global/", "/pg_tblspc/", NULL};
	int			saved_errno = errno;

	if (read_delay_us > 0 && bytes > 0 && bytes % PAGE_BYTES == 0 &&
		is_switched_on() && is_below(fd, directories))
		delay(read_delay_us);
	errno = saved_errno;
}

/* True if the flush has been replaced by a delay. */
static bool
delay_flush(int fd)
{
	static const char *const directories[] = {"/pg_wal/", NULL};
	int			saved_errno = errno;
	bool		is_delayed;

	is_delayed = flush_delay_us > 0 && is_switched_on() && is_below(fd, directories);
	if (is_delayed)
		delay(flush_delay_us);
	errno = saved_errno;
	return is_delayed;
}

static size_t
iovec_bytes(const struct iovec *iov, int iovcnt)
{
	size_t		bytes = 0;

	for (int i = 0; i < iovcnt; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

ssize_t
pread(int fd, void *buffer, size_t bytes, off_t offset)
{
	delay_read(fd, bytes);
	return real_pread(fd, buffer, bytes, offset);
}

ssize_t
pread64(int fd, void *buffer, size_t bytes, off64_t offset)
{
	delay_read(fd, bytes);
	return real_pread64(fd, buffer, bytes, offset);
}

ssize_t
preadv(int fd, const struct iovec *iov, int iovcnt, off_t offset)
{
	delay_read(fd, iovec_bytes(iov, iovcnt));
	return real_preadv(fd, iov, iovcnt, offset);
}

ssize_t
preadv64(int fd, const struct iovec *iov, int iovcnt, off64_t offset)
{
	delay_read(fd, iovec_bytes(iov, iovcnt));
	return real_preadv64(fd, iov, iovcnt, offset);
}

int
fdatasync(int fd)
{
	return delay_flush(fd) ? 0 : real_fdatasync(fd);
}

int
fsync(int fd)
{
	return delay_flush(fd) ? 0 : real_fsync(fd);
}
