/*-------------------------------------------------------------------------
 * truncate.h
 *	  TRUNCATE of the publisher, applied by a writer.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TRUNCATE_H
#define PAPPLY_TRUNCATE_H

#include "parallel_apply.h"

/*
 * Apply a TRUNCATE.  message is the whole message, whose relations have the
 * versions given to papply_target_use_version().  Must be called in a
 * transaction and in its turn.  Closes all targets.  Throws whatever applying
 * throws.
 */
extern void papply_truncate(char *message, int length);

#endif							/* PAPPLY_TRUNCATE_H */
