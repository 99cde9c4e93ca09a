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
 * Postmaster, when it ends: keep n records of that size under a name of its own.
 * What goes wrong is logged, and nothing is kept.
 */
extern void papply_saved_write(const char *name, const void *records, Size size, int n);

/*
 * Postmaster, when it starts: the records, allocated with palloc, and how many
 * they are; NULL if there are none of that size.  They are not there any more
 * afterwards, so that a crash leaves nothing old.
 */
extern void *papply_saved_read(const char *name, Size size, int *n);

#endif							/* PAPPLY_SAVED_H */
