/*
 * tools/shifted_clock.c - for LD_PRELOAD: a clock that a test sets, forward and back.
 *
 * The file that SHIFTED_CLOCK names has the number of seconds, as an int64, by which the
 * time of day differs from the machine's.  Other clocks are as they are.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift = NULL;

__attribute__((constructor))
static void
open_shift(void)
{
	const char *name = getenv("SHIFTED_CLOCK");
	int			fd = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void	   *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map != MAP_FAILED)
		shift = map;
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			rc = syscall(SYS_clock_gettime, clock, now);

	if (rc == 0 && clock == CLOCK_REALTIME && shift)
		now->tv_sec += *shift;
	return rc;
}

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec ts;

	(void) zone;
	clock_gettime(CLOCK_REALTIME, &ts);
	now->tv_sec = ts.tv_sec;
	now->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *now)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (now)
		*now = ts.tv_sec;
	return ts.tv_sec;
}
