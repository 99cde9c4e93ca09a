/*-------------------------------------------------------------------------
 * slot_consumer.h
 *	  Find out what the consumers of this server's WAL want of it.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SLOT_CONSUMER_H
#define PAPPLY_SLOT_CONSUMER_H

#include "replication/slot.h"

/*
 * Is the logical slot used by a walsender that omits all changes which have a
 * replication origin?  The caller holds ReplicationSlotControlLock.
 */
extern bool papply_slot_consumer_omits_origins(const ReplicationSlot *slot);

/*
 * Return the process ID of a walsender without a slot whose standby holds back
 * the removal of rows, or 0 if there is none.
 */
extern int	papply_slot_consumer_find_standby(void);

#endif							/* PAPPLY_SLOT_CONSUMER_H */
