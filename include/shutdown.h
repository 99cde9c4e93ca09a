/*-------------------------------------------------------------------------
 * shutdown.h
 *	  Detect a shutdown of the server, exit quietly, and restart.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SHUTDOWN_H
#define PAPPLY_SHUTDOWN_H

#include "parallel_apply.h"

/*
 * Is the server being shut down?  True before any process is terminated for
 * that reason.  Reads a file, so call this only when a process is about to
 * exit.
 */
extern bool papply_shutdown_has_begun(void);

/* Writer: exit without a message if the server is being shut down. */
extern void papply_shutdown_init_writer(void);

/*
 * Apply worker: end the process; the launcher starts another one.  reason follows "because".
 */
PAPPLY_NORETURN extern void papply_shutdown_restart(const char *reason);

#endif							/* PAPPLY_SHUTDOWN_H */
