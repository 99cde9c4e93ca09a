/*-------------------------------------------------------------------------
 * decoding.c
 *	  Find out whether the WAL of this server is decoded.
 *
 * Runs in the receiver and in writers.
 *
 * Logical decoding on the subscriber (for cascading replication or change data
 * capture) sees transactions as they are in its WAL.  If the WAL may be
 * decoded, it must be what PostgreSQL's own apply would write: one local
 * transaction for each remote one, with its commit time, and with its changes
 * in order.  So there are no batches then (batch.c), nothing is postponed
 * (postpone.c), and rows of different partitions are not inserted together
 * (insert_run.c).  Nor is a streamed transaction applied before its end
 * (early.c): a slot that is being created waits for all transactions that have
 * an xid, and keeps the WAL since they began.
 *
 * The WAL is never decoded if it has no logical information.  Up to PostgreSQL
 * 15 all slots are on this server, and only those of the database get its
 * changes.  Since 16 a standby can have slots, which are unknown to this
 * server, so all WAL that can be decoded is treated as decoded.  The setting
 * logical_decoding overrides this.
 *
 * Locking: slots are read under ReplicationSlotControlLock.  A slot is added
 * under the same lock before its creator determines the running transactions,
 * none of which it decodes.  Hence a transaction that has an xid and then sees
 * no slot is free from these rules until it ends.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/slot.h"

#include "decoding.h"

/*
 * Is there a logical slot of this database (InvalidOid: of any), including
 * slots that are being created?
 */
static bool
has_slot(Oid dbid)
{
	bool		found = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && !found; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		found = slot->in_use && SlotIsLogical(slot) &&
			(dbid == InvalidOid || slot->data.database == dbid);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return found;
}

/* Can the WAL of this database be decoded? */
static bool
is_possible(Oid dbid)
{
	bool		is_elsewhere = papply_logical_decoding == PAPPLY_DECODING_ON ||
	(papply_logical_decoding == PAPPLY_DECODING_AUTO && PAPPLY_STANDBYS_HAVE_SLOTS);

	return !papply_decoding_is_impossible() &&
		((is_elsewhere && XLogLogicalInfoActive()) || has_slot(dbid));
}

bool
papply_decoding_is_impossible(void)
{
	return papply_logical_decoding == PAPPLY_DECODING_OFF ||
		papply_compat_wal_is_never_logical();
}

bool
papply_decoding_is_possible(void)
{
	return is_possible(MyDatabaseId);
}

bool
papply_decoding_waits_for_xids(void)
{
	return is_possible(InvalidOid);
}
