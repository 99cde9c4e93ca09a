/*-------------------------------------------------------------------------
 * room: pool
 *
 * shutdown.h
 *	  Detect a shutdown of the server, and exit quietly.
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

#endif							/* PAPPLY_SHUTDOWN_H */
