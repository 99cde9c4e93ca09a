/*-------------------------------------------------------------------------
 * conflict.c
 *	  Conflicts that do not fail: rows that are missing, or were written by
 *	  another origin.
 *
 * Runs in a writer.
 *
 * From 18 on, the server's apply worker reports a row that another origin has
 * written, or that is missing, as soon as it reaches it: in the log, and in
 * the statistics of the subscription.  A writer cannot do that, because its
 * transaction may still be rolled back and applied again, and because the
 * reports would not come in commit order.  So it notes what a report needs.
 * The server's own function reports it in the turn of the transaction, when
 * only the commit is left.  If the transaction fails, its notes are dropped,
 * and the process that applies it next reports.  Waiting for the turn at each
 * conflict would make apply serial where two servers replicate to each other,
 * because many rows there have another origin.
 *
 * The origin of a row need not be checked again in the turn.  The writer
 * changes the row, so no older transaction can still change it, unless this
 * transaction fails.
 *
 * Notes hold copies of the rows, from 18 on.  If there are many, the writer waits for its
 * turn in the middle of the transaction and reports them.  Only in this case
 * are the conflicts reported twice if the transaction fails later.
 *
 * Violations of unique constraints are errors, which the core apply
 * loop reports.  Before 18, the same notes are made only if
 * parallel_apply.log_conflicts is on, and logged by conflict_type.c.
 *
 * On all versions, conflicts are counted for the views when their transaction
 * is committed (account.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/heaptoast.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "lib/ilist.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "conflict.h"
#include "pool.h"

/* Notes are reported when they exceed this size. */
#define NOTES_BYTES (1024 * 1024)

typedef struct Note
{
	dlist_node	node;
	Oid			relid;
	Oid			root_relid;		/* its owner may be the user: compat.h */
	PapplyRowWriter writer;
	char		message_type;
	char	   *label;			/* of the target */
	TransactionId remote_xid;
	XLogRecPtr	final_lsn;
	char	   *key;
	bool		is_found;		/* is there a local row? */

	/* rows of the table for the server's report, or NULL */
	HeapTuple	searched;
	HeapTuple	local;
	HeapTuple	remote;			/* of an UPDATE */
} Note;

typedef struct Notes
{
	MemoryContext context;
	dlist_head	list;			/* of Note */
} Notes;

static Notes notes;

/*
 * Copy a row, with its TOAST values, since a TRUNCATE may follow.  Return NULL where the
 * server does not report conflicts.
 */
static HeapTuple
copy_row(TupleTableSlot *slot)
{
	MemoryContext old_context;
	HeapTuple	row;

	if (!PAPPLY_REPORTS_CONFLICTS)
		return NULL;
	old_context = MemoryContextSwitchTo(notes.context);
	row = ExecCopySlotHeapTuple(slot);
	if (HeapTupleHasExternal(row))
		row = toast_flatten_tuple(row, slot->tts_tupleDescriptor);
	MemoryContextSwitchTo(old_context);
	return row;
}

const char *
papply_conflict_key(PapplyTarget *target, const PapplyTuple *tuple)
{
	const LogicalRepRelation *remote = &target->entry->remoterel;
	StringInfoData names;
	StringInfoData values;

	initStringInfo(&names);
	initStringInfo(&values);
	for (int i = 0; i < Min(remote->natts, tuple->ncolumns); i++)
	{
		const char *separator = names.len > 0 ? ", " : "";
		char		value[PAPPLY_CONFLICT_KEY_LENGTH + 1];

		if (!bms_is_member(i, remote->attkeys) || values.len > PAPPLY_CONFLICT_KEY_LENGTH)
			continue;
		appendStringInfo(&names, "%s%s", separator, remote->attnames[i]);
		(void) papply_message_show_column(&tuple->columns[i], value, sizeof(value));
		appendStringInfo(&values, "%s%s", separator, value);
	}
	return psprintf("(%s)=(%s)", names.data, values.data);
}

void
papply_conflict_note(PapplyTarget *target, PapplyTarget *table,
					 char message_type, bool is_found, const PapplyRowWriter *writer,
					 const char *key)
{
	PapplyWriterSlot *writer_slot = &papply_pool->writers[papply_pool_waiter];
	Note	   *note;

	if (notes.context == NULL)
		notes.context = AllocSetContextCreate(TopMemoryContext, "parallel_apply conflicts",
											  ALLOCSET_DEFAULT_SIZES);
	note = MemoryContextAllocZero(notes.context, sizeof(Note));
	dlist_push_tail(&notes.list, &note->node);
	note->relid = RelationGetRelid(table->rel);
	note->root_relid = table->root_relid;
	note->writer = *writer;
	note->message_type = message_type;
	note->label = MemoryContextStrdup(notes.context, target->label);
	note->remote_xid = writer_slot->remote_xid;
	note->final_lsn = writer_slot->remote_final_lsn;
	note->key = MemoryContextStrdup(notes.context, key);
	note->is_found = is_found;
	note->searched = copy_row(table->remote_slot);
	note->local = is_found ? copy_row(table->local_slot) : NULL;
}

void
papply_conflict_note_new_row(PapplyTarget *table)
{
	Assert(!dlist_is_empty(&notes.list));
	dlist_tail_element(Note, node, &notes.list)->remote = copy_row(table->remote_slot);
}

bool
papply_conflict_must_report(void)
{
	return !dlist_is_empty(&notes.list) &&
		MemoryContextMemAllocated(notes.context, false) > NOTES_BYTES;
}

static void
describe_note(void *arg)
{
	Note	   *note = arg;

	papply_message_add_context(papply_pool->subid, note->message_type, note->label,
							   note->remote_xid, note->final_lsn);
}

static TupleTableSlot *
make_slot(EState *estate, Relation rel, HeapTuple row)
{
	if (row == NULL)
		return NULL;
	return ExecStoreHeapTuple(row, ExecInitExtraTupleSlot(estate, RelationGetDescr(rel),
														  &TTSOpsHeapTuple), false);
}

/*
 * Let the server report a note.  The transaction has locked the table, and
 * closed its executor state.
 */
static void
report_by_server(Note *note)
{
	Relation	rel = table_open(note->relid, NoLock);
	Relation	root = table_open(note->root_relid, NoLock);
	EState	   *estate = CreateExecutorState();
	ResultRelInfo *result_rel = makeNode(ResultRelInfo);
	TupleTableSlot *searched = make_slot(estate, rel, note->searched);
	TupleTableSlot *local = make_slot(estate, rel, note->local);
	TupleTableSlot *remote = make_slot(estate, rel, note->remote);
	PapplyUserContext user_context;

	InitResultRelInfo(result_rel, rel, 0, NULL, 0);
	papply_compat_begin_as_table_owner(root, &user_context);
	papply_compat_report_conflict(estate, result_rel, note->message_type,
								  searched, local, remote, &note->writer);
	papply_compat_end_as_table_owner(&user_context);
	ExecResetTupleTable(estate->es_tupleTable, true);
	FreeExecutorState(estate);
	table_close(root, NoLock);
	table_close(rel, NoLock);
}

void
papply_conflict_report_all(void)
{
	ErrorContextCallback *old_stack = error_context_stack;
	ErrorContextCallback error_context = {NULL, describe_note, NULL};
	dlist_iter	iter;

	if (dlist_is_empty(&notes.list))
		return;
	PushActiveSnapshot(GetTransactionSnapshot());
	error_context_stack = &error_context;
	dlist_foreach(iter, &notes.list)
	{
		Note	   *note = dlist_container(Note, node, iter.cur);

		error_context.arg = note;
		if (PAPPLY_REPORTS_CONFLICTS)
			report_by_server(note);
		else
			papply_conflict_type_log(note->relid,
									 papply_conflict_type_of(note->message_type, note->is_found),
									 &note->writer, note->key);
	}
	error_context_stack = old_stack;
	PopActiveSnapshot();
	papply_conflict_forget_all();
}

void
papply_conflict_forget_all(void)
{
	if (dlist_is_empty(&notes.list))
		return;
	dlist_init(&notes.list);
	MemoryContextReset(notes.context);
}
