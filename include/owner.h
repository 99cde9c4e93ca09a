/*-------------------------------------------------------------------------
 * owner.h
 *	  The process that applies a transaction, and the processes that wait for
 *	  it.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_OWNER_H
#define PAPPLY_OWNER_H

#include "pool.h"

/*
 * Return the writer of a pool that has claimed this transaction, or NULL.
 * Unlocked, a hint.
 */
extern PapplyWriterSlot *papply_owner_writer(PapplyPool *pool, uint64 seqno);

/*
 * Return the pool, other than the one of this process, in whose commit order
 * pid waits, as one of its writers; or NULL.  Unlocked, a hint.
 */
extern PapplyPool *papply_owner_other_pool(int pid);

/*
 * Return the process whose commit, data or fallback a writer of pool waits
 * for, or 0.  For views, a hint.
 */
extern int	papply_owner_awaited_pid(PapplyPool *pool, int writer);

/*
 * Receiver: free the space of the oldest transaction, which is larger than the
 * queue, that its writer has read.  Returns false if there was none.
 */
extern bool papply_owner_reclaim_read(void);

#endif							/* PAPPLY_OWNER_H */
