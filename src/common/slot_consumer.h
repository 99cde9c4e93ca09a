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

/*** last_consumer.c ***/

/*
 * Is the slot of pgoutput unused, and where a walsender has left it that
 * omitted all changes which have a replication origin?  The caller holds
 * ReplicationSlotControlLock.
 */
extern bool papply_last_consumer_omitted_origins(ReplicationSlot *slot);

/*** replication_command.c ***/

/*
 * Is this a complete command START_REPLICATION of that logical slot, with the
 * option origin 'none'?
 */
extern bool papply_replication_command_omits_origins(const char *command, const char *slot_name);

#endif							/* PAPPLY_SLOT_CONSUMER_H */
