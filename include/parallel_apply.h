/*-------------------------------------------------------------------------
 * parallel_apply.h
 *	  Common definitions for all files of the extension.
 *-------------------------------------------------------------------------
 */
#ifndef PARALLEL_APPLY_H
#define PARALLEL_APPLY_H

#include "postgres.h"

#include "compat.h"
#include "guc.h"

/* Name of the extension, the library and the prefix of its settings. */
#define PAPPLY_NAME "parallel_apply"

/* backend_type of each writer in pg_stat_activity. */
#define PAPPLY_WRITER_TYPE PAPPLY_NAME " writer"

/* Upper bound of the settings for numbers of writers. */
#define PAPPLY_MAX_WRITERS 64

/* Waiters of papply_commit_order_advance(): the writers, then the receiver. */
#define PAPPLY_WAITER_RECEIVER PAPPLY_MAX_WRITERS
#define PAPPLY_WAITERS (PAPPLY_MAX_WRITERS + 1)

/* No transaction has this sequence number.  As a dependency: none. */
#define PAPPLY_NO_SEQNO UINT64CONST(0)

/* Stands for a transaction that has not ended, younger than all others. */
#define PAPPLY_SEQNO_OPEN PG_UINT64_MAX

#endif							/* PARALLEL_APPLY_H */
