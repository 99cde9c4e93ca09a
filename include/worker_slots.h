/*-------------------------------------------------------------------------
 * room: pool
 *
 * worker_slots.h
 *	  Does the server lack worker slots for workers of its own?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WORKER_SLOTS_H
#define PAPPLY_WORKER_SLOTS_H

#include "parallel_apply.h"

/* The postmaster, once: for all processes. */
extern void papply_worker_slots_init(void);
extern void papply_worker_slots_request_shmem(void);
extern void papply_worker_slots_init_shmem(void);

/*
 * So often there was none for an apply or synchronisation worker; and when last, as of
 * clock.h, or 0.
 */
extern uint64 papply_worker_slots_missed(void);
extern int64 papply_worker_slots_missed_at(void);

#endif							/* PAPPLY_WORKER_SLOTS_H */
