/*-------------------------------------------------------------------------
 * room: pool
 *
 * saved.h
 *	  Records that survive a restart of the server.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SAVED_H
#define PAPPLY_SAVED_H

#include "parallel_apply.h"

/*
 * Postmaster, at shutdown: save n records of this size under a unique name.
 * An error is logged, and nothing is saved.
 */
extern void papply_saved_write(const char *name, const void *records, Size size, int n);

/*
 * Postmaster, at startup: return the saved records, allocated with palloc, and
 * their number; NULL if there are none of this size.  The file is removed, so
 * that nothing outdated is found after a crash.
 */
extern void *papply_saved_read(const char *name, Size size, int *n);

#endif							/* PAPPLY_SAVED_H */
