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
 * A page that was announced by posix_fadvise(POSIX_FADV_WILLNEED), which is what
 * PrefetchBuffer() comes to, is under way from that moment: a read of it waits for
 * the rest of the delay only.  All processes of the server share the announcements,
 * as they share the operating system's cache, in a table of fixed size (see
 * "announced").  A read uses an announcement up: what the server evicts from its
 * buffers and reads again waits again.  Reads by io_uring are not seen.
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
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 8192

/* Slots of the table of announcements: many more than are ever under way. */
#define ANNOUNCED_SLOTS (1 << 17)

/* An announcement that nobody used is forgotten after this time. */
#define ANNOUNCED_FOR_US 1000000

/* How long the state of the switch is believed, and for how many files what they are. */
#define SWITCH_US 2000
#define KNOWN_FILES 256

typedef ssize_t (*pread_function) (int, void *, size_t, off_t);
typedef ssize_t (*pread64_function) (int, void *, size_t, off64_t);
typedef ssize_t (*preadv_function) (int, const struct iovec *, int, off_t);
typedef ssize_t (*preadv64_function) (int, const struct iovec *, int, off64_t);
typedef int (*flush_function) (int);
typedef int (*fadvise_function) (int, off_t, off_t, int);
typedef int (*fadvise64_function) (int, off64_t, off64_t, int);

static pread_function real_pread;
static pread64_function real_pread64;
static preadv_function real_preadv;
static preadv64_function real_preadv64;
static flush_function real_fdatasync;
static flush_function real_fsync;
static fadvise_function real_posix_fadvise;
static fadvise64_function real_posix_fadvise64;

/*
 * The announced pages, shared by the postmaster with its children.  A slot is one
 * word, so that it needs no lock: the upper half says which page (a part of its
 * hash, another part being the slot's number), the lower one when it is ready, in
 * microseconds modulo 2^32.  0 = free.  Of two pages with the same slot the later
 * one wins; the other is read as if it had not been announced.  NULL = no memory,
 * nothing is remembered.
 */
static _Atomic uint64_t *announced;

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
	real_posix_fadvise = (fadvise_function) dlsym(RTLD_NEXT, "posix_fadvise");
	real_posix_fadvise64 = (fadvise64_function) dlsym(RTLD_NEXT, "posix_fadvise64");

	read_delay_us = microseconds_from_environment("READ_DELAY_US");
	flush_delay_us = microseconds_from_environment("FLUSH_DELAY_US");
	/* A copy: the server reuses the memory of its environment for ps. */
	if (getenv("READ_DELAY_SWITCH"))
		switch_path = strdup(getenv("READ_DELAY_SWITCH"));
	if (read_delay_us > 0)
	{
		announced = mmap(NULL, ANNOUNCED_SLOTS * sizeof(*announced), PROT_READ | PROT_WRITE,
						 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (announced == MAP_FAILED)
			announced = NULL;
	}
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

static uint32_t
now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint32_t) ((uint64_t) now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

/* Looked at now and then: what this library does is part of what is measured. */
static bool
is_switched_on(void)
{
	static bool is_on = false;
	static uint32_t looked_at = 0;
	uint32_t	now;

	if (switch_path == NULL)
		return true;
	now = now_us();
	if (looked_at == 0 || now - looked_at > SWITCH_US)
	{
		is_on = access(switch_path, F_OK) == 0;
		looked_at = now ? now : 1;
	}
	return is_on;
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

/* Is this a relation file?  Files do not move, so that of most is remembered. */
static bool
is_relation_file(int fd, const struct stat *file)
{
	static const char *const directories[] = {"/base/", "/global/", "/pg_tblspc/", NULL};
	static struct
	{
		dev_t		device;
		ino_t		inode;
		bool		is_known;
		bool		is_relation;
	}			known[KNOWN_FILES];
	int			i = file->st_ino % KNOWN_FILES;

	if (!known[i].is_known || known[i].inode != file->st_ino || known[i].device != file->st_dev)
	{
		known[i].device = file->st_dev;
		known[i].inode = file->st_ino;
		known[i].is_relation = is_below(fd, directories);
		known[i].is_known = true;
	}
	return known[i].is_relation;
}

/* Are these pages of a relation file, and are reads slow at this moment? */
static bool
is_slow_read(int fd, size_t bytes, struct stat *file)
{
	return read_delay_us > 0 && bytes > 0 && bytes % PAGE_BYTES == 0 &&
		is_switched_on() && fstat(fd, file) == 0 && is_relation_file(fd, file);
}

/* Any good mixture of the bits does (this one is that of splitmix64). */
static uint64_t
hash_of_page(const struct stat *file, off64_t page)
{
	uint64_t	x = file->st_ino * 0x9E3779B97F4A7C15 + file->st_dev * 0xD1B54A32D192ED03 + page;

	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
	return x ^ (x >> 31);
}

/*
 * Is this page announced in this slot?  Then *wait_us is how long it takes until it
 * is ready, negative if it is.
 */
static bool
is_announced(uint64_t slot, uint64_t hash, uint32_t now, int32_t *wait_us)
{
	*wait_us = (int32_t) ((uint32_t) slot - now);
	return slot != 0 && slot >> 32 == hash >> 32 &&
		*wait_us > -ANNOUNCED_FOR_US && *wait_us <= read_delay_us;
}

/* The storage begins to read these pages; one that is under way already stays so. */
static void
announce(int fd, off64_t offset, off64_t bytes)
{
	int			saved_errno = errno;
	struct stat file;

	if (announced && bytes > 0 && is_slow_read(fd, PAGE_BYTES, &file))
	{
		uint32_t	now = now_us();

		for (off64_t page = offset / PAGE_BYTES; page * PAGE_BYTES < offset + bytes; page++)
		{
			uint64_t	hash = hash_of_page(&file, page);
			_Atomic uint64_t *slot = &announced[hash % ANNOUNCED_SLOTS];
			int32_t		wait_us;

			if (!is_announced(*slot, hash, now, &wait_us))
				*slot = hash >> 32 << 32 | (uint32_t) (now + read_delay_us);
		}
	}
	errno = saved_errno;
}

/*
 * How long a read of these pages has to wait: the whole delay if one of them was not
 * announced.  Uses the announcements up.
 */
static long
wait_of_read(const struct stat *file, size_t bytes, off64_t offset)
{
	uint32_t	now;
	long		longest_us = 0;

	if (!announced)
		return read_delay_us;
	now = now_us();
	for (off64_t page = offset / PAGE_BYTES; page < (off64_t) (offset + bytes) / PAGE_BYTES; page++)
	{
		uint64_t	hash = hash_of_page(file, page);
		_Atomic uint64_t *slot = &announced[hash % ANNOUNCED_SLOTS];
		uint64_t	value = *slot;
		int32_t		wait_us;

		if (!is_announced(value, hash, now, &wait_us))
			wait_us = read_delay_us;
		else
			atomic_compare_exchange_strong(slot, &value, 0);
		if (wait_us > longest_us)
			longest_us = wait_us;
	}
	return longest_us;
}

/* errno is the server's; a delay must not change it. */
static void
delay_read(int fd, size_t bytes, off64_t offset)
{
	int			saved_errno = errno;
	struct stat file;

	if (is_slow_read(fd, bytes, &file))
	{
		long		wait_us = wait_of_read(&file, bytes, offset);

		if (wait_us > 0)
			delay(wait_us);
	}
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
	delay_read(fd, bytes, offset);
	return real_pread(fd, buffer, bytes, offset);
}

ssize_t
pread64(int fd, void *buffer, size_t bytes, off64_t offset)
{
	delay_read(fd, bytes, offset);
	return real_pread64(fd, buffer, bytes, offset);
}

ssize_t
preadv(int fd, const struct iovec *iov, int iovcnt, off_t offset)
{
	delay_read(fd, iovec_bytes(iov, iovcnt), offset);
	return real_preadv(fd, iov, iovcnt, offset);
}

ssize_t
preadv64(int fd, const struct iovec *iov, int iovcnt, off64_t offset)
{
	delay_read(fd, iovec_bytes(iov, iovcnt), offset);
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

int
posix_fadvise(int fd, off_t offset, off_t bytes, int advice)
{
	if (advice == POSIX_FADV_WILLNEED)
		announce(fd, offset, bytes);
	return real_posix_fadvise(fd, offset, bytes, advice);
}

int
posix_fadvise64(int fd, off64_t offset, off64_t bytes, int advice)
{
	if (advice == POSIX_FADV_WILLNEED)
		announce(fd, offset, bytes);
	return real_posix_fadvise64(fd, offset, bytes, advice);
}
