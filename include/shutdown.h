/*-------------------------------------------------------------------------
 * room: pool
 *
 * shutdown.h
 *	  A server that is being shut down.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SHUTDOWN_H
#define PAPPLY_SHUTDOWN_H

#include "parallel_apply.h"

/*
 * Is the server being shut down?  True before any process is terminated for that
 * reason.  Reads a file: ask when a process ends, not while it works.
 */
extern bool papply_shutdown_has_begun(void);

/* In a writer: exit without a message if the server is being shut down. */
extern void papply_shutdown_init_writer(void);

#endif							/* PAPPLY_SHUTDOWN_H */
