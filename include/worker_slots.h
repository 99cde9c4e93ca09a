/*-------------------------------------------------------------------------
 * worker_slots.h
 *	  Leave worker slots to the server's own workers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WORKER_SLOTS_H
#define PAPPLY_WORKER_SLOTS_H

#include "parallel_apply.h"

/* In the postmaster, once for all processes. */
extern void papply_worker_slots_init(void);
extern void papply_worker_slots_request_shmem(void);
extern void papply_worker_slots_init_shmem(void);

/*
 * Return how often an apply or synchronization worker found no slot, and when
 * last (see clock.h), or 0.
 */
extern uint64 papply_worker_slots_missed(void);
extern int64 papply_worker_slots_missed_at(void);

/*
 * Return how many slots all writers together may occupy; negative if other
 * workers use the reserve.
 */
extern int	papply_worker_slots_for_writers(void);

#endif							/* PAPPLY_WORKER_SLOTS_H */
