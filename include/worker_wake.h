/*-------------------------------------------------------------------------
 * room: pool
 *
 * worker_wake.h
 *	  Apply workers that are to look at what a transaction has changed.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WORKER_WAKE_H
#define PAPPLY_WORKER_WAKE_H

#include "parallel_apply.h"

/*
 * Wake the leader apply worker of this subscription, if it has one, when the
 * current transaction is committed and its invalidations are sent.
 */
extern void papply_worker_wake_at_commit(Oid subid);

/* Is it to be woken by the current transaction? */
extern bool papply_worker_wake_is_pending(Oid subid);

#endif							/* PAPPLY_WORKER_WAKE_H */
