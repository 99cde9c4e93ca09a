/*-------------------------------------------------------------------------
 * last_consumer.h
 *	  Remember what the last consumer of a logical slot wanted of it.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LAST_CONSUMER_H
#define PAPPLY_LAST_CONSUMER_H

#include "replication/slot.h"

/* For _PG_init: have walsenders report, and request and initialize the shared memory. */
extern void papply_last_consumer_init(void);
extern void papply_last_consumer_request_shmem(void);
extern void papply_last_consumer_init_shmem(void);

/*
 * Is the slot of pgoutput unused, and where a walsender has left it that
 * omitted all changes which have a replication origin?  The caller holds
 * ReplicationSlotControlLock.
 */
extern bool papply_last_consumer_omitted_origins(ReplicationSlot *slot);

#endif							/* PAPPLY_LAST_CONSUMER_H */
