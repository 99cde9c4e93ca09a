/*-------------------------------------------------------------------------
 * apply.c
 *	  From a change of the publisher to a change of a local row.
 *
 * Runs in a writer.  What happens to a row is what the native worker does with
 * it (columns by name, defaults for those that are not published, NULL for
 * dropped ones, unchanged TOAST values from the local row), with the state of
 * the table prepared (target.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "lib/stringinfo.h"
#include "pgstat.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "apply.h"
#include "row_lookup.h"

static PapplyChange change;		/* too large for the stack */
static StringInfoData message_copy;

/* What pg_stat_activity shows, NULL if idle; only compared. */
static const char *shown_table = "";

static void
show_table(const char *table)
{
	if (table == shown_table)
		return;
	shown_table = table;
	pgstat_report_activity(table ? STATE_RUNNING : STATE_IDLE, table);
}

void
papply_apply_show_idle(void)
{
	show_table(NULL);
}

static Datum
receive_binary(PapplyTarget *target, int attribute, const PapplyColumn *column)
{
	Form_pg_attribute att = TupleDescAttr(target->remote_slot->tts_tupleDescriptor, attribute);
	PapplyColumnInput *input = &target->inputs[attribute];
	StringInfoData buf;
	Datum		value;

	if (!OidIsValid(input->binary_function.fn_oid))
	{
		Oid			function;

		getTypeBinaryInputInfo(att->atttypid, &function, &input->binary_param);
		fmgr_info_cxt(function, &input->binary_function, target->context);
	}

	/* receive functions want a zero byte behind the data, and private memory */
	initStringInfo(&buf);
	appendBinaryStringInfo(&buf, column->data, column->length);
	value = ReceiveFunctionCall(&input->binary_function, &buf,
								input->binary_param, att->atttypmod);
	if (buf.cursor != buf.len)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("incorrect binary data format in column \"%s\"",
						NameStr(att->attname))));
	return value;
}

/* Set one value of remote_slot from a column as it was sent. */
static void
store_column(PapplyTarget *target, int attribute, const PapplyTuple *tuple)
{
	TupleTableSlot *slot = target->remote_slot;
	Form_pg_attribute att = TupleDescAttr(slot->tts_tupleDescriptor, attribute);
	PapplyColumnInput *input = &target->inputs[attribute];
	const PapplyColumn *column = &tuple->columns[input->column];

	if (input->column >= tuple->ncolumns)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("logical replication column %d is missing", input->column + 1)));

	slot->tts_isnull[attribute] = false;
	if (column->kind == LOGICALREP_COLUMN_TEXT)
		slot->tts_values[attribute] = InputFunctionCall(&input->text_function, column->data,
														input->text_param, att->atttypmod);
	else if (column->kind == LOGICALREP_COLUMN_BINARY)
		slot->tts_values[attribute] = receive_binary(target, attribute, column);
	else
	{
		slot->tts_values[attribute] = (Datum) 0;
		slot->tts_isnull[attribute] = true;
	}
}

/* All published columns into remote_slot, NULL for the others. */
static void
store_tuple(PapplyTarget *target, PapplyTuple *tuple)
{
	TupleTableSlot *slot = target->remote_slot;
	int			natts = slot->tts_tupleDescriptor->natts;

	papply_message_terminate_columns(tuple);
	ExecClearTuple(slot);
	for (int i = 0; i < natts; i++)
	{
		if (target->inputs[i].column >= 0)
			store_column(target, i, tuple);
		else
		{
			slot->tts_values[i] = (Datum) 0;
			slot->tts_isnull[i] = true;
		}
	}
	ExecStoreVirtualTuple(slot);
}

/*
 * The local row with the published columns replaced, into remote_slot; values
 * that are kept still point into the local row.
 */
static void
store_modified(PapplyTarget *target, PapplyTuple *tuple)
{
	TupleTableSlot *slot = target->remote_slot;
	TupleTableSlot *local = target->local_slot;
	int			natts = slot->tts_tupleDescriptor->natts;

	papply_message_terminate_columns(tuple);
	slot_getallattrs(local);
	ExecClearTuple(slot);
	for (int i = 0; i < natts; i++)
	{
		int			column = target->inputs[i].column;

		if (column >= 0 && (column >= tuple->ncolumns ||
							tuple->columns[column].kind != LOGICALREP_COLUMN_UNCHANGED))
			store_column(target, i, tuple);
		else
		{
			slot->tts_values[i] = local->tts_values[i];
			slot->tts_isnull[i] = local->tts_isnull[i];
		}
	}
	ExecStoreVirtualTuple(slot);
}

static void
store_defaults(PapplyTarget *target)
{
	TupleTableSlot *slot = target->remote_slot;
	ExprContext *econtext = GetPerTupleExprContext(target->estate);

	for (int i = 0; i < target->ndefaults; i++)
	{
		int			column = target->default_columns[i];

		slot->tts_values[column] = ExecEvalExpr(target->default_exprs[i], econtext,
												&slot->tts_isnull[column]);
	}
}

static bool
apply_insert(PapplyTarget *target)
{
	papply_target_check_rights(target, ACL_INSERT);
	store_tuple(target, &change.new_tuple);
	store_defaults(target);
	ExecSimpleRelationInsert(papply_target_insert_rel(target), target->estate,
							 target->remote_slot);
	return true;
}

/* Find the row of an UPDATE or DELETE, into local_slot. */
static bool
find_row(PapplyTarget *target, AclMode rights, PapplyTuple *key, bool must_lock)
{
	if (!target->entry->updatable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows of table \"%s\" cannot be identified",
						RelationGetRelationName(target->entry->localrel))));
	papply_target_check_rights(target, ACL_SELECT | rights);
	store_tuple(target, key);
	return papply_row_lookup(target, must_lock);
}

static bool
apply_update(PapplyTarget *target, bool must_lock)
{
	PapplyTuple *key = change.has_old ? &change.old_tuple : &change.new_tuple;

	if (!find_row(target, ACL_UPDATE, key, must_lock))
		return false;
	store_modified(target, &change.new_tuple);
	EvalPlanQualSetSlot(&target->epqstate, target->remote_slot);
	ExecSimpleRelationUpdate(papply_target_update_rel(target), target->estate,
							 &target->epqstate, target->local_slot, target->remote_slot);
	return true;
}

static bool
apply_delete(PapplyTarget *target, bool must_lock)
{
	if (!find_row(target, ACL_DELETE, &change.old_tuple, must_lock))
		return false;
	EvalPlanQualSetSlot(&target->epqstate, target->local_slot);
	ExecSimpleRelationDelete(papply_target_update_rel(target), target->estate,
							 &target->epqstate, target->local_slot);
	return true;
}

/* As the native worker says it. */
static void
report_missing(PapplyTarget *target)
{
	ereport(DEBUG1,
			(errmsg_internal("logical replication did not find row to be %s in replication target relation \"%s\"",
							 change.type == LOGICAL_REP_MSG_UPDATE ? "updated" : "deleted",
							 RelationGetRelationName(target->entry->localrel))));
}

/* The message is parsed in a copy, since columns get terminated in place. */
static void
parse_copy(const char *message, int length)
{
	papply_message_reset_buffer(&message_copy);
	appendBinaryStringInfo(&message_copy, message, length);
	papply_message_parse_change(message_copy.data, length, &change);
}

bool
papply_apply_change(const char *message, int length, uint32 version, bool is_last_look)
{
	PapplyTarget *target;
	PapplyUserContext user_context;
	MemoryContext old_context;
	bool		found = false;

	parse_copy(message, length);
	target = papply_target_open(change.remote_relid, version);
	show_table(target->label);

	papply_compat_begin_as_table_owner(target->entry->localrel, &user_context);
	old_context = MemoryContextSwitchTo(GetPerTupleMemoryContext(target->estate));
	switch (change.type)
	{
		case LOGICAL_REP_MSG_INSERT:
			found = apply_insert(target);
			break;
		case LOGICAL_REP_MSG_UPDATE:
			found = apply_update(target, is_last_look);
			break;
		case LOGICAL_REP_MSG_DELETE:
			found = apply_delete(target, is_last_look);
			break;
	}
	if (!found && is_last_look && !PAPPLY_REPORTS_CONFLICTS)
		report_missing(target);
	MemoryContextSwitchTo(old_context);
	papply_row_lookup_release(target);
	ResetPerTupleExprContext(target->estate);
	papply_compat_end_as_table_owner(&user_context);
	return found;
}
