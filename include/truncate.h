/*-------------------------------------------------------------------------
 * room: writer
 *
 * truncate.h
 *	  TRUNCATE of the publisher, applied by a writer.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TRUNCATE_H
#define PAPPLY_TRUNCATE_H

#include "parallel_apply.h"

/*
 * Apply a TRUNCATE (whole message), whose relations have the versions that were
 * given to papply_target_use_version().  In a transaction, in whose turn; all
 * targets are closed.  Throws whatever applying throws.
 */
extern void papply_truncate(char *message, int length);

#endif							/* PAPPLY_TRUNCATE_H */
