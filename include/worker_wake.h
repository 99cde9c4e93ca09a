/*-------------------------------------------------------------------------
 * worker_wake.h
 *	  Wake apply workers that must notice what a transaction has changed.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WORKER_WAKE_H
#define PAPPLY_WORKER_WAKE_H

#include "parallel_apply.h"

/*
 * Wake the leader apply worker of this subscription, if it has one, after the
 * current transaction has committed and its invalidations have been sent.
 */
extern void papply_worker_wake_at_commit(Oid subid);

/* Will the current transaction wake it? */
extern bool papply_worker_wake_is_pending(Oid subid);

#endif							/* PAPPLY_WORKER_WAKE_H */
