/*-------------------------------------------------------------------------
 * apply.c
 *	  From a change of the publisher to a change of a local row.
 *
 * Runs in a writer.
 *
 * A row gets what the core apply loop gives it:  columns are matched by name,
 * columns that are not published get their defaults, dropped ones are NULL,
 * and unchanged TOAST values come from the local row.  The difference is that
 * the state of the table is prepared beforehand (target.c).  A row of a
 * partitioned table is formed for the root and then passed to its partition
 * (partition.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "commands/trigger.h"
#include "lib/stringinfo.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "account.h"
#include "apply.h"
#include "conflict.h"
#include "in_progress.h"
#include "insert_run.h"
#include "key_wait.h"
#include "postpone.h"
#include "result_rel.h"
#include "rights.h"
#include "routing.h"
#include "row_lookup.h"
#include "session_state.h"

/* The change that is being applied. */
typedef struct Current
{
	PapplyChange change;		/* too large for the stack */
	StringInfoData message;		/* a copy, which change points to */
	const char *table;			/* NULL: not known yet, or there is none */
	bool		has_run_code;	/* in this range */
	bool		has_user_code;	/* the same, or functions */
} Current;

static Current current;

/*
 * Rows that were put off may be inserted when the current change is of another
 * relation.
 */
const char *
papply_apply_table(void)
{
	const PapplyTarget *inserting = papply_insert_run_inserting();

	return inserting != NULL ? inserting->label : current.table;
}

LogicalRepRelId
papply_apply_relation(void)
{
	const PapplyTarget *inserting = papply_insert_run_inserting();

	return inserting != NULL ? inserting->key.remote_relid : current.change.remote_relid;
}

void
papply_apply_begin_range(void)
{
	current.table = NULL;		/* an error may have left it */
	current.has_run_code = current.has_user_code = false;
}

/* The server is about to call user code, at least functions. */
static void
begin_user_code(void)
{
	papply_single_session_check();
	current.has_user_code = true;
}

void
papply_apply_begin_code(void)
{
	begin_user_code();
	current.has_run_code = true;
}

bool
papply_apply_has_user_code(void)
{
	return current.has_user_code;
}

bool
papply_apply_has_run_code(void)
{
	return current.has_run_code;
}

static Datum
receive_binary(PapplyTarget *target, Form_pg_attribute att, const PapplyColumn *column)
{
	PapplyColumnInput *input = &target->inputs[att->attnum - 1];
	StringInfoData buf;
	Datum		value;

	if (!OidIsValid(input->binary_function.fn_oid))
	{
		Oid			function;

		getTypeBinaryInputInfo(att->atttypid, &function, &input->binary_param);
		fmgr_info_cxt(function, &input->binary_function, target->context);
	}

	/*
	 * Receive functions need a terminating zero byte, and may write to the
	 * buffer.
	 */
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

Datum
papply_apply_input(PapplyTarget *target, Form_pg_attribute att, const PapplyColumn *column)
{
	PapplyColumnInput *input = &target->inputs[att->attnum - 1];
	Datum		value;

	if (column->kind == LOGICALREP_COLUMN_BINARY)
		return receive_binary(target, att, column);
	if (input->fast_input != NULL &&
		input->fast_input(column->data, &value))
	{
		Assert(datumIsEqual(value,
							InputFunctionCall(&input->text_function, column->data,
											  input->text_param, att->atttypmod),
							att->attbyval, att->attlen));
		return value;
	}
	return InputFunctionCall(&input->text_function, column->data,
							 input->text_param, att->atttypmod);
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

	slot->tts_isnull[attribute] = column->kind != LOGICALREP_COLUMN_TEXT &&
		column->kind != LOGICALREP_COLUMN_BINARY;
	slot->tts_values[attribute] = slot->tts_isnull[attribute] ? (Datum) 0 :
		papply_apply_input(target, att, column);
}

/*
 * Store all published columns in remote_slot, or only those of the key.  All
 * others become NULL.
 */
static void
store_columns(PapplyTarget *target, PapplyTuple *tuple, bool only_key)
{
	TupleTableSlot *slot = target->remote_slot;
	int			natts = slot->tts_tupleDescriptor->natts;

	papply_message_terminate_columns(tuple);
	ExecClearTuple(slot);
	for (int i = 0; i < natts; i++)
	{
		if (target->inputs[i].column >= 0 && (!only_key || target->inputs[i].is_key))
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
 * Does the local row have the text that was sent?  Most columns of a row do
 * not change, and comparing is cheaper than making the value again.
 */
static bool
has_same_text(PapplyTarget *target, int attribute, const PapplyColumn *column)
{
	TupleTableSlot *local = target->local_slot;
	struct varlena *value;

	if (!target->inputs[attribute].is_text || local->tts_isnull[attribute] ||
		column->kind != LOGICALREP_COLUMN_TEXT)
		return false;
	value = (struct varlena *) DatumGetPointer(local->tts_values[attribute]);
	return !VARATT_IS_EXTERNAL(value) && !VARATT_IS_COMPRESSED(value) &&
		VARSIZE_ANY_EXHDR(value) == column->length &&
		memcmp(VARDATA_ANY(value), column->data, column->length) == 0;
}

/* Does an UPDATE leave the value of the local row as it is? */
static bool
is_unchanged(PapplyTarget *target, int attribute, const PapplyTuple *tuple)
{
	int			column = target->inputs[attribute].column;

	if (column < 0)
		return true;
	return column < tuple->ncolumns &&
		(tuple->columns[column].kind == LOGICALREP_COLUMN_UNCHANGED ||
		 has_same_text(target, attribute, &tuple->columns[column]));
}

/*
 * Store the local row with the published columns replaced in remote_slot.
 * Values that are kept still point into the local row.
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
		if (!is_unchanged(target, i, tuple))
			store_column(target, i, tuple);
		else
		{
			slot->tts_values[i] = local->tts_values[i];
			slot->tts_isnull[i] = local->tts_isnull[i];
		}
	}
	ExecStoreVirtualTuple(slot);
}

/*
 * Throw an error for a default such as now() in a transaction that is applied
 * in progress.  Its value would be earlier than in older transactions that
 * begin later.
 */
static void
refuse_defaults_in_progress(PapplyTarget *target)
{
	if (target->has_mutable_default && papply_in_progress_mine() != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot evaluate a default of table \"%s\" before the end of the transaction",
						RelationGetRelationName(target->rel))));
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

/* Return the table that the row in remote_slot belongs to. */
static PapplyTarget *
table_of_row(PapplyTarget *target)
{
	return target->routing ? papply_partition_of_row(target) : target;
}

/*
 * The table OID of the slot, which the last row has left, is cleared before
 * each row, here and in insert_run.c.  The core apply loop uses a new slot, so
 * a column generated from tableoid becomes 0.
 */
static void
insert_row(PapplyTarget *table)
{
	papply_rights_check(table, ACL_INSERT);
	table->remote_slot->tts_tableOid = InvalidOid;
	ExecSimpleRelationInsert(papply_result_rel_insert(table), table->estate,
							 table->remote_slot);
}

static void
update_row(PapplyTarget *table)
{
	papply_rights_check(table, ACL_UPDATE);
	table->remote_slot->tts_tableOid = InvalidOid;
	EvalPlanQualSetSlot(&table->epqstate, table->remote_slot);
	ExecSimpleRelationUpdate(papply_result_rel_update(table), table->estate,
							 &table->epqstate, table->local_slot, table->remote_slot);
}

static void
delete_row(PapplyTarget *table)
{
	papply_rights_check(table, ACL_DELETE);
	EvalPlanQualSetSlot(&table->epqstate, table->local_slot);
	ExecSimpleRelationDelete(papply_result_rel_update(table), table->estate,
							 &table->epqstate, table->local_slot);
}

static void
apply_insert(PapplyTarget *target)
{
	MemoryContext old_context = CurrentMemoryContext;
	bool		is_of_run = papply_insert_run_takes(target);
	PapplyTarget *table;

	refuse_defaults_in_progress(target);
	if (is_of_run)
		MemoryContextSwitchTo(papply_insert_run_memory());
	store_columns(target, &current.change.new_tuple, false);
	store_defaults(target);
	MemoryContextSwitchTo(old_context);

	table = table_of_row(target);
	papply_rights_check(table, ACL_INSERT);
	if (!is_of_run || !papply_insert_run_add(target, table))
		insert_row(table);
}

/* Return the tuple that identifies the row of an UPDATE or DELETE. */
static PapplyTuple *
searched_tuple(void)
{
	return current.change.has_old ? &current.change.old_tuple : &current.change.new_tuple;
}

/*
 * Count and note a conflict if the row that was found, or its absence, is one.
 * A row is one if another origin has written it.
 */
static void
note_conflict(PapplyTarget *target, PapplyTarget *table, bool is_found)
{
	PapplyRowWriter writer = {0};
	const char *key;

	if (is_found && !papply_compat_row_has_other_origin(table->local_slot, &writer))
		return;
	key = papply_conflict_key(target, searched_tuple());
	papply_account_table_conflict(target, papply_conflict_type_of(current.change.type, is_found), key);
	if (!PAPPLY_REPORTS_CONFLICTS && !papply_log_conflicts)
		return;
	store_columns(table, searched_tuple(), false);
	papply_conflict_note(target, table, current.change.type, is_found, &writer, key);
	if (current.change.type != LOGICAL_REP_MSG_UPDATE)
		return;
	store_columns(table, &current.change.new_tuple, false);
	papply_conflict_note_new_row(table);
}

/*
 * Report a missing row as the core apply loop does, which is at DEBUG1 up to
 * PostgreSQL 17.
 */
static void
report_missing(PapplyTarget *target, PapplyTarget *table)
{
	bool		is_update = current.change.type == LOGICAL_REP_MSG_UPDATE;
	bool		is_partition = OidIsValid(table->key.partition);

	store_columns(table, searched_tuple(), false);	/* may throw an error */
	note_conflict(target, table, false);
	if (!PAPPLY_REPORTS_CONFLICTS)
		ereport(DEBUG1,
				(errmsg_internal("logical replication did not find row to be %s in replication target relation%s \"%s\"",
								 is_update ? "updated" : "deleted",
								 is_update && is_partition ? "'s partition" : "",
								 RelationGetRelationName(table->rel))));
}

/*
 * Find the row of an UPDATE or DELETE.  It is stored in local_slot of the
 * table that is returned; returns NULL if there is none.  If triggers fire,
 * the row is locked, because they see it before it is changed.  Columns that
 * are not needed for the search are converted only after the row was found, if
 * at all.
 */
static PapplyTarget *
find_row(PapplyTarget *target, bool is_last_look)
{
	bool		only_key;
	PapplyTarget *table;

	only_key = !current.change.has_old && target->routing == NULL && target->lookup.is_identity;
	store_columns(target, searched_tuple(), only_key);
	table = table_of_row(target);
	if (!table->is_updatable)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows of table \"%s\" cannot be identified",
						RelationGetRelationName(table->rel))));
	papply_rights_check(table, ACL_SELECT);
	if (papply_row_lookup(table, is_last_look || papply_result_rel_fires_triggers(target)))
	{
		papply_postpone_check_row(table->local_slot);
		return table;
	}
	if (is_last_look)
	{
		papply_postpone_check_missing();
		report_missing(target, table);
	}
	papply_row_lookup_release(table);
	return NULL;
}

/* Apply an UPDATE to the row in local_slot, which may have to be moved. */
static void
apply_update(PapplyTarget *target, PapplyTarget *table)
{
	store_modified(table, &current.change.new_tuple);
	if (target->has_generated || papply_result_rel_fires_triggers(target))
		papply_target_set_updated(target, table, &current.change.new_tuple);
	if (table == target ||
		ExecPartitionCheck(table->insert_rel, table->remote_slot, table->estate, false))
		update_row(table);
	else
	{
		PapplyTarget *other = papply_partition_to_move_to(target, table);

		delete_row(table);
		insert_row(other);
	}
}

/* Apply an UPDATE or DELETE. */
static bool
apply_to_row(PapplyTarget *target, bool is_last_look)
{
	PapplyTarget *table = find_row(target, is_last_look);

	if (table == NULL)
		return false;
	note_conflict(target, table, true);
	if (current.change.type == LOGICAL_REP_MSG_UPDATE)
		apply_update(target, table);
	else
		delete_row(table);
	papply_row_lookup_release(table);
	return true;
}

static bool
apply_parsed(PapplyTarget *target, bool is_last_look)
{
	MemoryContext old_context = MemoryContextSwitchTo(GetPerTupleMemoryContext(target->estate));
	bool		found = true;

	if (current.change.type == LOGICAL_REP_MSG_INSERT)
		apply_insert(target);
	else
		found = apply_to_row(target, is_last_look);
	MemoryContextSwitchTo(old_context);
	return found;
}

/*
 * Apply a change that may run user code, under the conditions of the core
 * apply loop: the code sees the time and the snapshot of this change, and
 * immediate triggers fire before the next one.
 */
static bool
apply_with_code(PapplyTarget *target, bool is_last_look)
{
	bool		found;

	papply_apply_begin_code();
	SetCurrentStatementStartTimestamp();
	PushActiveSnapshot(GetTransactionSnapshot());
	target->estate->es_output_cid = GetCurrentCommandId(true);
	AfterTriggerBeginQuery();
	found = apply_parsed(target, is_last_look);
	AfterTriggerEndQuery(target->estate);
	PopActiveSnapshot();
	return found;
}

bool
papply_apply_change(const char *message, int length, uint32 version, bool is_last_look,
					bool is_exclusive)
{
	PapplyMessage copy;
	PapplyTarget *target;
	PapplyUserContext user_context;
	bool		found;

	/* parse a copy, because columns are terminated in place */
	papply_message_reset_buffer(&current.message);
	appendBinaryStringInfo(&current.message, message, length);
	copy = papply_message_read(current.message.data, length);
	papply_message_parse_change(&copy, &current.change);
	target = papply_target_open(current.change.remote_relid, version, is_exclusive);
	papply_insert_run_begin_change(current.change.type, target);
	current.table = target->label;
	if (target->has_user_code)
		begin_user_code();
	papply_key_wait_begin_change(target, &current.change);

	papply_compat_begin_as_table_owner(target->rel, &user_context);
	if (papply_target_runs_code(target))
		found = apply_with_code(target, is_last_look);
	else
		found = apply_parsed(target, is_last_look);
	current.has_user_code |= target->has_user_code; /* a partition may have it */
	ResetPerTupleExprContext(target->estate);
	papply_compat_end_as_table_owner(&user_context);
	if (found)
		papply_account_table_change(target, current.change.type);
	else if (!is_last_look)
		papply_account_table_add(target, PAPPLY_TABLE_RETRIED_LOOKUPS, 1);
	papply_target_release(target);
	papply_insert_run_end_change();
	current.table = NULL;
	papply_message_reset_buffer(&current.message);	/* free memory, since the
													 * next change may come
													 * much later */
	return found;
}
