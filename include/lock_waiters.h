/*-------------------------------------------------------------------------
 * room: pool
 *
 * lock_waiters.h
 *	  Who waits for a lock of a process?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOCK_WAITERS_H
#define PAPPLY_LOCK_WAITERS_H

#include "storage/proc.h"

/*
 * Does a process that is not of this pool wait for a lock that proc has?  It must not be
 * called with a part of the lock table locked.
 */
extern bool papply_lock_waiters_exist(PGPROC *proc);

#endif							/* PAPPLY_LOCK_WAITERS_H */
