/*-------------------------------------------------------------------------
 * decoding.c
 *	  Find out whether the WAL of this server is decoded.
 *
 * Runs in the receiver, in writers, and in a user's backend.
 *
 * Logical decoding on the subscriber (for cascading replication or change data
 * capture) sees transactions as they are in its WAL.  If the WAL may be
 * decoded, it must be what PostgreSQL's own apply would write: one local
 * transaction for each remote one, with its commit time, and with its changes
 * in order.  So there are no batches then (batch.c), nothing is postponed
 * (postpone.c), and rows of different partitions are not inserted together
 * (insert_run.c).  Nor is a streamed transaction applied before its end
 * (in_progress.c): a slot that is being created waits for all transactions
 * that have an xid, and keeps the WAL since they began.
 *
 * The WAL is never decoded if it has no logical information.  Otherwise, by
 * default, it is taken for decoded while
 *
 * - there is a logical slot, unless its consumer gets nothing of what is applied
 *   anyway: with origin 'none', the server's decoder drops each change and each
 *   commit that has a replication origin, before it collects them.  All that is
 *   applied has one, since a writer sets the origin when it begins a local
 *   transaction (local_commit.c), before anything is logged.  So two servers
 *   that subscribe to each other in this way do not see what the other one has
 *   sent.  Of a slot that is not used, its last consumer counts, if that is known
 *   (last_consumer.c).  Changes are decoded for slots of their database only;
 * - a standby may have a logical slot (16 and later).  A slot that is used there
 *   needs the feedback of the standby, which holds back the removal of catalog
 *   rows here: the standby's physical slot has a catalog_xmin then, or, without
 *   such a slot, its walsender has an xmin.
 *
 * XXX A standby that synchronizes failover slots (17 and later) counts although
 * nothing there decodes before it is promoted, and then for the consumers of these
 * slots, which are known here.  But its feedback has one catalog_xmin, the
 * oldest of all slots that it has, and those of synchronized slots lag
 * behind the ones here by an unknown time.  So the feedback is the same whether or
 * not the standby has another slot, which does decode.
 *
 * The setting logical_decoding overrides this.
 *
 * Locking: slots are read under ReplicationSlotControlLock.  A slot is added
 * under the same lock before its creator determines the running transactions,
 * none of which it decodes.  Hence a transaction that has an xid and then sees
 * no slot is free from these rules until it ends.  If a later
 * consumer of the slot requests what the former one did not, it gets the
 * transaction as it is.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/commit_ts.h"
#include "access/transam.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "replication/slot.h"

#include "decoding.h"
#include "slot_consumer.h"

/* What may decode the WAL of this server. */
typedef enum DecoderKind
{
	DECODER_NONE,
	DECODER_SETTING,			/* the setting says that there is one */
	DECODER_SLOT,
	DECODER_STANDBY_SLOT,		/* a slot of the standby with this slot */
	DECODER_STANDBY				/* a slot of a standby without a slot here */
} DecoderKind;

typedef struct Decoder
{
	DecoderKind kind;
	NameData	slot_name;		/* DECODER_SLOT, DECODER_STANDBY_SLOT */
	int			pid;			/* DECODER_STANDBY: its walsender */
} Decoder;

/*
 * Does the slot show that changes of this database (InvalidOid: of any) may be
 * decoded?  This includes slots that are being created.
 */
static DecoderKind
slot_decoder(ReplicationSlot *slot, Oid dbid)
{
	bool		is_auto = papply_logical_decoding == PAPPLY_DECODING_AUTO;

	if (!slot->in_use)
		return DECODER_NONE;
	if (SlotIsPhysical(slot))
		return is_auto && PAPPLY_STANDBYS_HAVE_SLOTS &&
			TransactionIdIsValid(slot->effective_catalog_xmin) ?
			DECODER_STANDBY_SLOT : DECODER_NONE;
	if (dbid != InvalidOid && slot->data.database != dbid)
		return DECODER_NONE;
	if (is_auto && (papply_slot_consumer_omits_origins(slot) ||
					papply_last_consumer_omitted_origins(slot)))
		return DECODER_NONE;
	return DECODER_SLOT;
}

static void
find_slot(Oid dbid, Decoder *decoder)
{
	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots && decoder->kind == DECODER_NONE; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		decoder->kind = slot_decoder(slot, dbid);
		if (decoder->kind != DECODER_NONE)
			decoder->slot_name = slot->data.name;
	}
	LWLockRelease(ReplicationSlotControlLock);
}

/* Find out what may decode changes of this database (InvalidOid: of any). */
static Decoder
find_decoder(Oid dbid)
{
	Decoder		decoder = {DECODER_NONE};

	if (papply_decoding_is_impossible())
		return decoder;
	if (papply_logical_decoding == PAPPLY_DECODING_ON && XLogLogicalInfoActive())
	{
		decoder.kind = DECODER_SETTING;
		return decoder;
	}
	find_slot(dbid, &decoder);
	if (decoder.kind == DECODER_NONE && papply_logical_decoding == PAPPLY_DECODING_AUTO &&
		XLogLogicalInfoActive())
	{
		decoder.pid = papply_slot_consumer_find_standby();
		if (decoder.pid != 0)
			decoder.kind = DECODER_STANDBY;
	}
	return decoder;
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
	return find_decoder(MyDatabaseId).kind != DECODER_NONE;
}

bool
papply_decoding_waits_for_xids(void)
{
	return find_decoder(InvalidOid).kind != DECODER_NONE;
}

char *
papply_decoding_strict_reason(void)
{
	Decoder		decoder = find_decoder(MyDatabaseId);

	switch (decoder.kind)
	{
		case DECODER_SETTING:
			return pstrdup("\"" PAPPLY_NAME ".logical_decoding\" is \"on\"");
		case DECODER_SLOT:
			return psprintf("logical replication slot \"%s\" may decode what is applied",
							NameStr(decoder.slot_name));
		case DECODER_STANDBY_SLOT:
			return psprintf("the standby of replication slot \"%s\" has logical replication slots",
							NameStr(decoder.slot_name));
		case DECODER_STANDBY:
			return psprintf("the standby of walsender %d may have logical replication slots",
							decoder.pid);
		case DECODER_NONE:
			break;
	}
	return track_commit_timestamp ? pstrdup("\"track_commit_timestamp\" is on") : NULL;
}
