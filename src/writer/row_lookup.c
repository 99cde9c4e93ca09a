/*-------------------------------------------------------------------------
 * row_lookup.c
 *	  Find the local row that a change is about.
 *
 * Runs in a writer.
 *
 * By the replica identity index or the primary key, the scan is opened once
 * for the local transaction and rescanned for each row, with keys prepared
 * once for the table.  What else there is (sequential scan; from PostgreSQL 16
 * on other indexes for REPLICA IDENTITY FULL) is the server's own search.
 *
 * A dirty snapshot is used: it finds rows of transactions in progress, so that
 * we wait for them instead of missing the row.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "row_lookup.h"

/* The equality function of a key column of a btree index. */
static RegProcedure
equality_of(Relation index, int column)
{
	Oid			family = index->rd_opfamily[column];
	Oid			type = index->rd_opcintype[column];
	Oid			operator = get_opfamily_member(family, type, type, BTEqualStrategyNumber);

	if (!OidIsValid(operator))
		elog(ERROR, "missing operator %d(%u,%u) in opfamily %u",
			 BTEqualStrategyNumber, type, type, family);
	return get_opcode(operator);
}

void
papply_row_lookup_prepare(PapplyTarget *target)
{
	PapplyIndexKeys *lookup = &target->lookup;
	Relation	index;
	Form_pg_index form;

	lookup->index = InvalidOid;
	if (!OidIsValid(target->lookup_index))
		return;

	index = index_open(target->lookup_index, RowExclusiveLock);
	form = index->rd_index;
	if (index->rd_rel->relam == BTREE_AM_OID && form->indisunique && form->indimmediate &&
		(form->indisprimary || form->indisreplident))
	{
		lookup->index = target->lookup_index;
		lookup->count = IndexRelationGetNumberOfKeyAttributes(index);
		for (int i = 0; i < lookup->count; i++)
		{
			lookup->attnums[i] = form->indkey.values[i];
			ScanKeyInit(&lookup->keys[i], i + 1, BTEqualStrategyNumber,
						equality_of(index, i), (Datum) 0);
			lookup->keys[i].sk_collation = index->rd_indcollation[i];
		}
	}
	index_close(index, NoLock);
}

static void
begin_scan(PapplyTarget *target)
{
	if (target->index_scan != NULL)
		return;
	InitDirtySnapshot(target->dirty_snapshot);
	target->index_rel = index_open(target->lookup.index, RowExclusiveLock);
	target->index_scan = papply_compat_index_beginscan(target->rel, target->index_rel,
													   &target->dirty_snapshot,
													   target->lookup.count);
}

/* The keys of the row; a NULL matches nothing. */
static void
set_keys(PapplyTarget *target)
{
	PapplyIndexKeys *lookup = &target->lookup;
	TupleTableSlot *slot = target->remote_slot;

	for (int i = 0; i < lookup->count; i++)
	{
		int			attnum = lookup->attnums[i];

		lookup->keys[i].sk_argument = slot->tts_values[attnum - 1];
		lookup->keys[i].sk_flags = slot->tts_isnull[attnum - 1] ? SK_ISNULL : 0;
	}
}

/* Lock the row that was found; false if it has changed meanwhile. */
static bool
lock_row(PapplyTarget *target)
{
	TM_FailureData failure;
	TM_Result	result;

	ExecMaterializeSlot(target->local_slot);
	PushActiveSnapshot(GetLatestSnapshot());
	result = table_tuple_lock(target->rel, &target->local_slot->tts_tid,
							  GetActiveSnapshot(), target->local_slot,
							  GetCurrentCommandId(false), LockTupleExclusive,
							  LockWaitBlock, 0, &failure);
	PopActiveSnapshot();

	if (result == TM_Invisible)
		elog(ERROR, "attempted to lock invisible tuple");
	return result == TM_Ok;
}

static bool
find_by_identity(PapplyTarget *target, bool must_lock)
{
	SnapshotData *snapshot = &target->dirty_snapshot;
	bool		found = false;

	/* the scan keeps memory from row to row */
	MemoryContext old_context = MemoryContextSwitchTo(target->estate->es_query_cxt);

	begin_scan(target);
	set_keys(target);
	while (!found)
	{
		TransactionId in_progress;

		index_rescan(target->index_scan, target->lookup.keys, target->lookup.count, NULL, 0);
		if (!index_getnext_slot(target->index_scan, ForwardScanDirection, target->local_slot))
			break;

		in_progress = TransactionIdIsValid(snapshot->xmin) ? snapshot->xmin : snapshot->xmax;
		if (TransactionIdIsValid(in_progress))
		{
			ExecClearTuple(target->local_slot);
			XactLockTableWait(in_progress, NULL, NULL, XLTW_None);
		}
		else
			found = !must_lock || lock_row(target);
	}
	MemoryContextSwitchTo(old_context);
	return found;
}

bool
papply_row_lookup(PapplyTarget *target, bool must_lock)
{

	if (OidIsValid(target->lookup.index))
		return find_by_identity(target, must_lock);
	if (OidIsValid(target->lookup_index))
		return papply_compat_find_by_index(target->rel, target->lookup_index,
										   target->remote_slot, target->local_slot);
	return RelationFindReplTupleSeq(target->rel, LockTupleExclusive,
									target->remote_slot, target->local_slot);
}

void
papply_row_lookup_release(PapplyTarget *target)
{
	ExecClearTuple(target->remote_slot);
	ExecClearTuple(target->local_slot);

	/*
	 * With a dirty snapshot a btree scan keeps its leaf page pinned, which
	 * VACUUM and pruning would have to wait for.
	 */
	if (target->index_scan != NULL)
		index_rescan(target->index_scan, target->lookup.keys, target->lookup.count, NULL, 0);
}

void
papply_row_lookup_end(PapplyTarget *target)
{
	if (target->index_scan == NULL)
		return;
	index_endscan(target->index_scan);
	index_close(target->index_rel, NoLock);
	target->index_scan = NULL;
	target->index_rel = NULL;
}
