/*-------------------------------------------------------------------------
 * shutdown.c
 *	  Detect a shutdown of the server, and exit quietly.
 *
 * Runs in the receiver and in writers.
 *
 * When the server is shut down, the postmaster terminates all background
 * workers at once, by the signal that pg_terminate_backend() sends.  Each of
 * them would log a FATAL error, and the postmaster would log exit code 1 for
 * each, so a restart with many writers would look like a failure.  Besides,
 * the receiver would report writers that exited before it received its own
 * signal.
 *
 * The postmaster writes "stopping" into postmaster.pid before it sends the
 * signals, and does not inform other processes otherwise.  So a process that
 * is about to exit reads this line once.
 *
 * The termination itself remains that of the server: a writer is interrupted
 * like any background worker, and only the message and the exit code are
 * changed.  No other message can be lost, because only messages with
 * ERRCODE_ADMIN_SHUTDOWN are hidden.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "replication/worker_internal.h"
#include "storage/ipc.h"
#include "utils/elog.h"
#include "utils/pidfile.h"

#include "shutdown.h"

/* Relative to the data directory, the working directory of all processes. */
#define PID_FILE "postmaster.pid"

static emit_log_hook_type previous_emit_log = NULL;
static bool is_quiet = false;

bool
papply_shutdown_has_begun(void)
{
	char		line[MAXPGPATH + 1024];
	int			number = 0;
	FILE	   *file = fopen(PID_FILE, PG_BINARY_R);

	if (file == NULL)
		return false;
	while (number < LOCK_FILE_LINE_PM_STATUS && fgets(line, sizeof(line), file) != NULL)
		number++;
	fclose(file);
	return number == LOCK_FILE_LINE_PM_STATUS &&
		strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
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
 * Change the exit code.  This is the last callback to run.  A callback may
 * call proc_exit(), which continues with the remaining callbacks.
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

void
papply_shutdown_restart(const char *reason)
{
	ereport(LOG,
			(errmsg("logical replication apply worker for subscription \"%s\" will restart because %s",
					MySubscription->name, reason)));
	proc_exit(1);
}
