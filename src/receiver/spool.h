/*-------------------------------------------------------------------------
 * spool.h
 *	  Spool transactions that are streamed while they are in progress.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPOOL_H
#define PAPPLY_SPOOL_H

#include "fate.h"
#include "message.h"

/*
 * Offer a message.  Return UNDECIDED if it is not concerned with spooling.
 * Otherwise it is TAKEN, which may complete a transaction, to be read next,
 * or TO_CORE_LOOP, whatever else is in flight, because that spools it.  If
 * wants_spool is set, a transaction that begins with this message is spooled
 * here to its end.  Nothing may be offered while a transaction is being read.
 */
extern PapplyFate papply_spool_take(const PapplyMessage *message, bool wants_spool);

/* Is no transaction kept here, ended or not? */
extern bool papply_spool_is_empty(void);

/* Is a complete transaction being read from the spool? */
extern bool papply_spool_is_reading(void);

/*
 * Return the next message of that transaction in the form of an ordinary
 * transaction, framed as by walrcv_receive().  It is valid until the next
 * call.  There is one while papply_spool_is_reading().
 */
extern int	papply_spool_next(char **buffer);

/*
 * Have all transactions that have not ended applied after their end
 * (in_progress.h).
 */
extern void papply_spool_revoke_in_progress(void);

/* The pool has stopped, and with it everything that was applied in progress. */
extern void papply_spool_pool_stopped(void);

/* Forget transactions applied in progress that are committed, up to that number. */
extern void papply_spool_clean(uint64 committed);

/*
 * Read the messages between BEGIN and COMMIT of a transaction that was applied
 * in progress, for the core apply loop to apply it.  Each message is valid
 * until the next call; its data is NULL if there is none.  *schema is the local
 * schema of a definition.
 */
extern void papply_spool_fallback_begin(uint64 seqno);
extern PapplyMessage papply_spool_fallback_next(Oid *schema);

/* Delete all files, because the process ends. */
extern void papply_spool_end(void);

/* Is a chunk being received that is spooled here? */
extern bool papply_spool_is_open(void);

/* Is the core apply loop between STREAM START and STREAM STOP? */
extern bool papply_spool_native_is_open(void);

#endif							/* PAPPLY_SPOOL_H */
