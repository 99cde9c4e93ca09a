/*-------------------------------------------------------------------------
 * shutdown.c
 *	  A server that is being shut down.
 *
 * Runs in the receiver and in writers.
 *
 * The postmaster terminates all background workers at once when the server is
 * shut down, with the same signal that pg_terminate_backend() sends.  Each of
 * them would log a FATAL error, and the postmaster that it exited with code 1,
 * so that a restart with many writers would look like an accident.  And the
 * receiver would report writers that ended before its own signal arrived.
 *
 * The postmaster writes "stopping" into postmaster.pid before it sends the
 * signals; no other process is told.  So that line is read, once, by a process
 * that is about to end.
 *
 * Termination itself stays the server's: a writer is interrupted where any
 * background worker is, and only the message and the exit code are changed.  No
 * message can be lost that way, since what is hidden is ERRCODE_ADMIN_SHUTDOWN.
 */
#include "parallel_apply.h"

#include <fcntl.h>
#include <unistd.h>

#include "storage/ipc.h"
#include "utils/elog.h"
#include "utils/pidfile.h"

#include "shutdown.h"

/* In the data directory, where every process of the server works. */
#define PID_FILE "postmaster.pid"

static emit_log_hook_type previous_emit_log = NULL;
static bool is_quiet = false;

/* The line with that number, from 1 on, or NULL. */
static const char *
find_line(const char *text, int number)
{
	while (text !=NULL && --number > 0)
	{
		text = strchr(text, '\n');

		if (text !=NULL)
			text	  ++;
	}
	return text;
}

bool
papply_shutdown_has_begun(void)
{
	char text[	MAXPGPATH + 1024];
	const char *status;
	ssize_t		length;
	int			file = open(PID_FILE, O_RDONLY | PG_BINARY, 0);

	if (file < 0)
		return false;
	length = read(file, text, sizeof(text) - 1);
	close(file);
	if (length <= 0)
		return false;
	text[		length] = '\0';

	status = find_line(text, LOCK_FILE_LINE_PM_STATUS);
	return status != NULL &&
		strncmp(status, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}

static void
hide_termination(ErrorData *error)
{
	if (error->elevel == FATAL && error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN &&
		papply_shutdown_has_begun())
	{
		is_quiet = true;
		error->output_to_server = false;
	}
	else if (previous_emit_log)
		previous_emit_log(error);
}

/*
 * The last of all callbacks.  proc_exit() may be called by a callback; it goes on with
 * those that are left.
 */
static void
exit_without_failure(int code, Datum arg)
{
	if (is_quiet)
		proc_exit(0);
}

void
papply_shutdown_init_writer(void)
{
	on_proc_exit(exit_without_failure, (Datum) 0);
	previous_emit_log = emit_log_hook;
	emit_log_hook = hide_termination;
}
