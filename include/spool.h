/*-------------------------------------------------------------------------
 * room: receiver
 *
 * spool.h
 *	  Transactions that are streamed while they are in progress.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPOOL_H
#define PAPPLY_SPOOL_H

#include "parallel_apply.h"

/* What became of a message. */
typedef enum PapplySpoolResult
{
	PAPPLY_SPOOL_NONE,			/* it has nothing to do with spooling */
	PAPPLY_SPOOL_KEPT,			/* it is in the spool */
	PAPPLY_SPOOL_NATIVE,		/* the native loop spools it, whatever else is
								 * in flight */
	PAPPLY_SPOOL_ENDED			/* a spooled transaction is complete: read it */
} PapplySpoolResult;

/*
 * Offer a message (kind byte first).  A transaction that begins with
 * wants_spool is kept here to its end, any other one by the native loop.
 * Nothing may be offered while a transaction is being read.
 */
extern PapplySpoolResult papply_spool_take(char *message, int length, bool wants_spool);

/* Is no transaction kept here, ended or not? */
extern bool papply_spool_is_empty(void);

/* Is a complete transaction being read from the spool? */
extern bool papply_spool_is_reading(void);

/*
 * Its next message, as an ordinary transaction, in the form that
 * walrcv_receive() returns, valid until the next call.  While
 * papply_spool_is_reading() there is one.
 */
extern int	papply_spool_next(char **buffer);

/* What has not ended is to be applied after its end: see early.h. */
extern void papply_spool_revoke_early(void);

/* The pool has stopped, and with it all that was applied early. */
extern void papply_spool_pool_stopped(void);

/* Up to that number all is committed: forget what was applied early. */
extern void papply_spool_clean(uint64 committed);

/*
 * The native loop has to do a transaction that was applied early: its messages
 * between BEGIN and COMMIT.  Each is valid until the next call; NULL: there is none.
 */
extern void papply_spool_replay_begin(uint64 seqno);
extern char *papply_spool_replay_next(int *length);

/* The process ends: delete all files. */
extern void papply_spool_end(void);

/* Is a chunk being received that is kept here? */
extern bool papply_spool_is_open(void);

/* Is the native loop between STREAM START and STREAM STOP? */
extern bool papply_spool_native_is_open(void);

#endif							/* PAPPLY_SPOOL_H */
