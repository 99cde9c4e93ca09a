/*
 * tools/random_stops.c - stop processes at random for a short time.
 *
 *   random_stops DIRECTORY SEED
 *
 * Until a signal ends it, it picks a random process whose executable is below the directory,
 * stops it for 1 to 40 ms, and continues with another one after 0 to 4 ms.  It stops
 * a process by ptrace(2), not by SIGSTOP: a test that has stopped or continues this process
 * by a signal does not notice, and what it has stopped stays stopped.
 *
 * It exits with 2 if it may not stop processes.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_PROCESSES 10000

static long stops = 0;

static void
sleep_us(long us)
{
	struct timespec time = {us / 1000000, us % 1000000 * 1000};

	nanosleep(&time, NULL);
}

static bool
is_below(const char *directory, const char *pid)
{
	char		link[64];
	char		path[4096];
	ssize_t		length;

	snprintf(link, sizeof(link), "/proc/%s/exe", pid);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return false;
	path[length] = '\0';
	/* In a root of its own, its path begins elsewhere. */
	return strstr(path, directory) != NULL;
}

/* Return a random process, 0 if there is none. */
static pid_t
choose(const char *directory)
{
	static pid_t found[MAX_PROCESSES];
	int			n = 0;
	DIR		   *proc = opendir("/proc");
	struct dirent *entry;

	while (proc != NULL && (entry = readdir(proc)) != NULL && n < MAX_PROCESSES)
	{
		if (isdigit((unsigned char) entry->d_name[0]) && is_below(directory, entry->d_name))
			found[n++] = atoi(entry->d_name);
	}
	if (proc != NULL)
		closedir(proc);
	return n == 0 ? 0 : found[random() % n];
}

/* A process that ends, or that another one traces, is left alone. */
static void
stop(pid_t pid)
{
	int			status;

	if (ptrace(PTRACE_SEIZE, pid, NULL, NULL) != 0)
	{
		if (errno == EPERM && stops == 0)
		{
			fprintf(stderr, "random_stops: may not stop process %d: %s\n", (int) pid, strerror(errno));
			exit(2);
		}
		return;
	}
	if (ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0)
	{
		if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status))
			return;
		sleep_us(1000 + random() % 39001);
		stops++;
		/* If a signal has stopped it before the interrupt did, it gets this signal now. */
		if (ptrace(PTRACE_DETACH, pid, NULL, status >> 16 == 0 ? WSTOPSIG(status) : 0) == 0)
			return;
	}
	/* It was killed.  Its parent learns that after its tracer. */
	waitpid(pid, &status, __WALL);
}

int
main(int argc, char **argv)
{
	if (argc != 3)
	{
		fprintf(stderr, "usage: random_stops DIRECTORY SEED\n");
		return 2;
	}
	srandom(strtoul(argv[2], NULL, 10));
	for (;;)
	{
		pid_t		pid = choose(argv[1]);

		if (pid != 0)
			stop(pid);
		sleep_us(pid != 0 ? random() % 4001 : 10000);
	}
}
