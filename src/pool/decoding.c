/*-------------------------------------------------------------------------
 * decoding.c
 *	  Is the WAL of this server decoded?
 *
 * Runs in the receiver and in writers.
 *
 * Logical decoding of the subscriber (a cascade, change data capture) gets transactions
 * as they are in its WAL.  Where it may, that has to be what PostgreSQL's own apply would
 * write: a local transaction for each remote one, with its commit time, and its changes
 * in their order.  So there are no batches then (batch.c), nothing is postponed
 * (postpone.c), and rows of different partitions are not gathered (insert_run.c).  Nor is a
 * streamed transaction applied before its end (early.c): a slot that is being created
 * waits for all transactions that have an xid, and keeps the WAL since they began.
 *
 * When is that?  Never without logical information in the WAL.  Up to PostgreSQL 15
 * all slots are on this server, and only those of the database get its changes.  From
 * 16 on a standby may have some, of which this server knows nothing, so any WAL that
 * can be decoded counts as decoded.  The setting logical_decoding says otherwise.
 *
 * Locking: slots are looked at under ReplicationSlotControlLock.  A slot gets there,
 * under the same lock, before its creator asks which transactions are running, and it
 * decodes none of those.  Hence who has got an xid first, and sees no slot then, may
 * do as it likes to the end of its transaction.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/slot.h"

#include "decoding.h"

/* Logical slots of a database, or of any (InvalidOid); also those being created. */
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

/* Does the WAL say all that decoding needs? */
static bool
is_possible(Oid dbid)
{
	if (papply_decoding_is_impossible())
		return false;
	if (papply_logical_decoding == PAPPLY_DECODING_ON ||
		(papply_logical_decoding == PAPPLY_DECODING_AUTO && PAPPLY_STANDBYS_HAVE_SLOTS))
		return XLogLogicalInfoActive() || has_slot(dbid);
	return has_slot(dbid);
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
