/*-------------------------------------------------------------------------
 * row_lookup.c
 *	  Find the local row of a change.
 *
 * Runs in a writer.
 *
 * If an index is used (lookup_index.c), the scan is opened once for the local
 * transaction, or for some thousand rows, and restarted for each row, with
 * keys prepared once for the table.  The rows that the index finds are
 * compared as a whole, unless it is the replica identity of the table.  If no
 * index is usable, the server's own search is used.
 *
 * A dirty snapshot finds rows of transactions in progress, so that the writer
 * waits for these transactions instead of missing the row.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/relscan.h"
#include "access/tableam.h"
#include "storage/lmgr.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "row_lookup.h"

/*
 * A scan is closed and opened again when it uses this much memory.  It needs
 * tens of kilobytes, but the equality operators of some types (ranges,
 * composite types) leave some memory there for each row.
 */
#define SCAN_BYTES (256 * 1024)

static void
begin_scan(PapplyTarget *target)
{
	MemoryContext old_context;

	if (target->index_scan != NULL)
		return;
	target->scan_context = AllocSetContextCreate(target->estate->es_query_cxt,
												 "parallel_apply scan",
												 ALLOCSET_DEFAULT_SIZES);
	old_context = MemoryContextSwitchTo(target->scan_context);
	InitDirtySnapshot(target->dirty_snapshot);
	target->index_rel = index_open(target->lookup.index, RowExclusiveLock);
	target->index_scan = papply_compat_index_beginscan(target->rel, target->index_rel,
													   &target->dirty_snapshot,
													   target->lookup.count);
	MemoryContextSwitchTo(old_context);
}

/*
 * Set the values to search for.  Returns false if the index cannot find them.
 * A NULL matches a NULL, even in a replica identity: in 18 its columns may
 * contain some from before they were NOT NULL (NOT VALID).  What comparisons
 * allocate lives as long as the change, because each scan begins with new
 * copies of the keys.
 */
static bool
set_keys(PapplyTarget *target)
{
	PapplyIndexKeys *lookup = &target->lookup;
	TupleTableSlot *slot = target->remote_slot;

	for (int i = 0; i < lookup->count; i++)
	{
		int			column = lookup->attnums[i] - 1;
		bool		is_null = slot->tts_isnull[column];

		if (is_null && !lookup->finds_nulls)
			return false;
		lookup->keys[i].sk_argument = slot->tts_values[column];
		lookup->keys[i].sk_func.fn_mcxt = CurrentMemoryContext;
		lookup->keys[i].sk_flags = is_null ? SK_ISNULL | SK_SEARCHNULL : 0;
	}
	return true;
}

/* Lock the row that was found.  Returns false if it has changed meanwhile. */
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

/* Does the whole row in local_slot equal the one that is searched for? */
static bool
rows_are_equal(PapplyTarget *target)
{
	TupleTableSlot *searched = target->remote_slot;
	TupleDesc	desc = RelationGetDescr(target->rel);

	for (int i = 0; i < desc->natts; i++)
	{
		FmgrInfo   *equality = &target->lookup.equality[i];
		bool		isnull;
		Datum		value;

		if (!OidIsValid(equality->fn_oid))
			continue;
		value = slot_getattr(target->local_slot, i + 1, &isnull);
		if (isnull != searched->tts_isnull[i])
			return false;
		if (!isnull &&
			!DatumGetBool(FunctionCall2Coll(equality, TupleDescAttr(desc, i)->attcollation,
											value, searched->tts_values[i])))
			return false;
	}
	return true;
}

static void
restart_scan(PapplyTarget *target)
{
	index_rescan(target->index_scan, target->lookup.keys, target->lookup.count, NULL, 0);
}

/* Get the next row of the index that may match into local_slot. */
static bool
next_candidate(PapplyTarget *target)
{
	/* the scan keeps memory from row to row */
	MemoryContext old_context = MemoryContextSwitchTo(target->scan_context);
	bool		found = index_getnext_slot(target->index_scan, ForwardScanDirection,
										   target->local_slot);

	MemoryContextSwitchTo(old_context);
	return found;
}

bool
papply_row_lookup(PapplyTarget *target, bool must_lock)
{
	SnapshotData *snapshot = &target->dirty_snapshot;

	if (!OidIsValid(target->lookup.index) || !set_keys(target))
		return RelationFindReplTupleSeq(target->rel, LockTupleExclusive,
										target->remote_slot, target->local_slot);
	begin_scan(target);
	restart_scan(target);
	while (next_candidate(target))
	{
		TransactionId in_progress = TransactionIdIsValid(snapshot->xmin) ?
		snapshot->xmin : snapshot->xmax;

		if (!target->lookup.is_identity && !rows_are_equal(target))
			continue;
		if (!TransactionIdIsValid(in_progress) && (!must_lock || lock_row(target)))
			return true;
		ExecClearTuple(target->local_slot);
		restart_scan(target);
		if (TransactionIdIsValid(in_progress))
			XactLockTableWait(in_progress, NULL, NULL, XLTW_None);
	}
	return false;
}

void
papply_row_lookup_release(PapplyTarget *target)
{
	ExecClearTuple(target->remote_slot);
	ExecClearTuple(target->local_slot);

	if (target->index_scan == NULL)
		return;

	/*
	 * With a dirty snapshot a btree scan keeps its leaf page pinned, which
	 * would make VACUUM wait and prevent pruning.
	 */
	if (MemoryContextMemAllocated(target->scan_context, true) < SCAN_BYTES)
		restart_scan(target);
	else
		papply_row_lookup_end(target);
}

void
papply_row_lookup_end(PapplyTarget *target)
{
	if (target->index_scan == NULL)
		return;
	index_endscan(target->index_scan);
	index_close(target->index_rel, NoLock);
	MemoryContextDelete(target->scan_context);
	target->index_scan = NULL;
	target->index_rel = NULL;
}
