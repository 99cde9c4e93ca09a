/*-------------------------------------------------------------------------
 * skipped_changes.c
 *	  Changes of a remote transaction as SQL statements, and those of a
 *	  skipped and stored one.
 *
 * Runs in a user's backend.
 *
 * A statement has the effect that the apply worker would have had: it changes
 * the same columns, in the row that has the key or, if the replica identity is
 * the whole row, in one row that is equal.  Values are literals in the form
 * that the publisher has sent.  Binary values are converted by the functions
 * of the local column's type, but the constraints of a domain are left to the
 * statement.  A type within another one may still be a domain, whose
 * constraints may call functions of any user.  So this is done with the
 * privileges of the table's owner, as the apply worker does, and without anything
 * in search_path that the user could have made.
 *
 * Like the apply worker, a statement changes neither tables that inherit from the table nor,
 * with TRUNCATE ... CASCADE, those that only the subscriber has.
 *
 * A user who may not read all of a table does not get statements for it.  A
 * table is found by its name.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/table.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "replication/logicalproto.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "../sql/result_rows.h"
#include "../sql/sql_common.h"
#include "failed.h"
#include "message.h"
#include "stored.h"

PG_FUNCTION_INFO_V1(papply_get_skipped_changes);

/* A table of the publisher, and the local one. */
typedef struct Table
{
	LogicalRepRelation *remote;
	char	   *name;			/* quoted */
	const char *only;			/* before the name in a statement that would
								 * change tables that inherit from it */
	Oid			relid;			/* InvalidOid: there is none */
	bool		may_see;		/* may the user see its data? */
	AttrNumber *attnums;		/* local ones, of its columns; 0: there is
								 * none */
} Table;

/*** tables ***/

static const char *
only_for(Oid relid)
{
	return OidIsValid(relid) && has_subclass(relid) &&
		get_rel_relkind(relid) != RELKIND_PARTITIONED_TABLE ? "ONLY " : "";
}

/* Read a definition. */
static Table *
read_table(char *message, int length, Oid subid)
{
	Table	   *table = palloc0(sizeof(Table));

	table->remote = papply_message_read_relation(message, length);
	table->name = quote_qualified_identifier(table->remote->nspname, table->remote->relname);
	table->relid = papply_sql_find_table(table->remote->nspname, table->remote->relname);
	table->only = only_for(table->relid);
	table->may_see = OidIsValid(subid) ?
		papply_sql_may_see_data(subid, table->remote->nspname, table->remote->relname) :
		papply_sql_may_read(table->relid);
	table->attnums = palloc0(sizeof(AttrNumber) * Max(table->remote->natts, 1));
	for (int i = 0; OidIsValid(table->relid) && i < table->remote->natts; i++)
		table->attnums[i] = get_attnum(table->relid, table->remote->attnames[i]);
	return table;
}

static void
check_rights(const Table *table)
{
	if (!table->may_see)
		aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE, table->name);
}

/* Return NULL if the table has no definition. */
static Table *
look_for_table(List *tables, LogicalRepRelId remoteid)
{
	ListCell   *cell;
	Table	   *found = NULL;

	foreach(cell, tables)
	{
		if (((Table *) lfirst(cell))->remote->remoteid == remoteid)
			found = lfirst(cell);	/* the newest definition */
	}
	return found;
}

static Table *
find_table(List *tables, LogicalRepRelId remoteid)
{
	Table	   *found = look_for_table(tables, remoteid);

	if (found == NULL)
		papply_message_malformed();
	return found;
}

/* Return the local column, or NULL. */
static Form_pg_attribute
attribute_of(Relation rel, const Table *table, int column)
{
	AttrNumber	attnum = table->attnums[column];

	return rel != NULL && attnum > 0 ? TupleDescAttr(RelationGetDescr(rel), attnum - 1) : NULL;
}

/*** parts of statements ***/

/* Return the type of the local column, or InvalidOid. */
static Oid
type_of(const Table *table, int column)
{
	AttrNumber	attnum = table->attnums[column];

	return attnum > 0 ? getBaseType(get_atttype(table->relid, attnum)) : InvalidOid;
}

static char *
text_of_binary(const Table *table, int column, const PapplyColumn *value)
{
	Oid			type = type_of(table, column);
	Datum		datum;
	Oid			receive;
	Oid			output;
	Oid			io_param;
	bool		is_varlena;
	StringInfoData buf;

	if (!OidIsValid(type))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of table %s does not exist",
						table->remote->attnames[column], table->name),
				 errdetail("Its values were sent in binary format.")));
	getTypeBinaryInputInfo(type, &receive, &io_param);
	initStringInfo(&buf);
	appendBinaryStringInfo(&buf, value->data, value->length);
	datum = OidReceiveFunctionCall(receive, &buf, io_param, -1);
	if (buf.cursor != buf.len)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_BINARY_REPRESENTATION),
				 errmsg("incorrect binary data format in column \"%s\"",
						table->remote->attnames[column])));
	getTypeOutputInfo(type, &output, &is_varlena);
	return OidOutputFunctionCall(output, datum);
}

static char *
literal_of(const Table *table, int column, const PapplyColumn *value)
{
	if (value->kind == LOGICALREP_COLUMN_TEXT)
		return quote_literal_cstr(pnstrdup(value->data, value->length));
	if (value->kind == LOGICALREP_COLUMN_BINARY)
		return quote_literal_cstr(text_of_binary(table, column, value));
	return "NULL";
}

static const char *
name_of(const Table *table, int column)
{
	return quote_identifier(table->remote->attnames[column]);
}

static void
check_columns(const Table *table, const PapplyTuple *tuple)
{
	if (tuple->ncolumns != table->remote->natts)
		papply_message_malformed();
}

/*
 * Append a value to compare a column with.  A literal without a type would not
 * always get the type of the column.
 */
static void
append_compared(StringInfo text, const Table *table, int column, const PapplyColumn *value)
{
	Oid			type = type_of(table, column);

	appendStringInfoString(text, literal_of(table, column, value));
	if (OidIsValid(type))
		appendStringInfo(text, "::%s",
						 format_type_extended(type, -1,
											  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
}

/* Append a condition for the row: by its key, or by all of its values. */
static void
append_where(StringInfo text, const Table *table, const PapplyTuple *tuple)
{
	bool		is_full = table->remote->replident == REPLICA_IDENTITY_FULL;
	const char *separator = "";

	check_columns(table, tuple);
	if (is_full)
		appendStringInfo(text, " WHERE (tableoid, ctid) = (SELECT tableoid, ctid FROM %s%s",
						 table->only, table->name);
	appendStringInfoString(text, " WHERE ");
	for (int i = 0; i < tuple->ncolumns; i++)
	{
		if (!bms_is_member(i, table->remote->attkeys))
			continue;
		appendStringInfo(text, "%s%s %s ", separator, name_of(table, i),
						 is_full ? "IS NOT DISTINCT FROM" : "=");
		append_compared(text, table, i, &tuple->columns[i]);
		separator = " AND ";
	}
	if (separator[0] == '\0')
		papply_message_malformed();
	if (is_full)
		appendStringInfoString(text, " LIMIT 1)");
}

/*** statements ***/

static void
append_insert(StringInfo text, Relation rel, const Table *table, const PapplyTuple *tuple)
{
	StringInfoData names;
	StringInfoData values;
	bool		is_overriding = false;

	check_columns(table, tuple);
	initStringInfo(&names);
	initStringInfo(&values);
	for (int i = 0; i < tuple->ncolumns; i++)
	{
		Form_pg_attribute attribute = attribute_of(rel, table, i);
		const char *separator = names.len > 0 ? ", " : "";

		if (attribute != NULL && attribute->attgenerated)
			continue;
		is_overriding |= attribute != NULL && attribute->attidentity == ATTRIBUTE_IDENTITY_ALWAYS;
		appendStringInfo(&names, "%s%s", separator, name_of(table, i));
		appendStringInfo(&values, "%s%s", separator, literal_of(table, i, &tuple->columns[i]));
	}
	if (names.len == 0)
		appendStringInfo(text, "INSERT INTO %s DEFAULT VALUES", table->name);
	else
		appendStringInfo(text, "INSERT INTO %s (%s)%s VALUES (%s)", table->name, names.data,
						 is_overriding ? " OVERRIDING SYSTEM VALUE" : "", values.data);
}

/* Is the column known to keep its value? */
static bool
is_unchanged(const Table *table, const PapplyChange *change, int column)
{
	const PapplyColumn *new_value = &change->new_tuple.columns[column];
	const PapplyColumn *old_value = &change->old_tuple.columns[column];

	if (new_value->kind == LOGICALREP_COLUMN_UNCHANGED)
		return true;
	if (!bms_is_member(column, table->remote->attkeys))
		return false;
	return !change->has_old ||
		(new_value->kind == old_value->kind && new_value->length == old_value->length &&
		 (new_value->length == 0 ||
		  memcmp(new_value->data, old_value->data, new_value->length) == 0));
}

/*
 * A statement cannot set a value of an identity column that is GENERATED
 * ALWAYS.  Such a column is omitted if its value does not change.
 */
static bool
must_be_set(const Table *table, Form_pg_attribute attribute, const PapplyChange *change,
			int column)
{
	if (change->new_tuple.columns[column].kind == LOGICALREP_COLUMN_UNCHANGED)
		return false;
	if (attribute == NULL)
		return true;
	return !attribute->attgenerated &&
		!(attribute->attidentity == ATTRIBUTE_IDENTITY_ALWAYS &&
		  is_unchanged(table, change, column));
}

/* Returns false if the statement would set nothing. */
static bool
append_update(StringInfo text, Relation rel, const Table *table, const PapplyChange *change)
{
	const PapplyTuple *tuple = &change->new_tuple;
	const char *separator = " SET ";

	check_columns(table, tuple);
	if (change->has_old)
		check_columns(table, &change->old_tuple);
	appendStringInfo(text, "UPDATE %s%s", table->only, table->name);
	for (int i = 0; i < tuple->ncolumns; i++)
	{
		if (!must_be_set(table, attribute_of(rel, table, i), change, i))
			continue;
		appendStringInfo(text, "%s%s = %s", separator, name_of(table, i),
						 literal_of(table, i, &tuple->columns[i]));
		separator = ", ";
	}
	append_where(text, table, change->has_old ? &change->old_tuple : tuple);
	return strcmp(separator, ", ") == 0;
}

/* Returns false if the statement would have no effect.  rel may be NULL. */
static bool
append_change_of(StringInfo text, Relation rel, const Table *table, const PapplyChange *change)
{
	if (change->type == LOGICAL_REP_MSG_INSERT)
		append_insert(text, rel, table, &change->new_tuple);
	else if (change->type == LOGICAL_REP_MSG_UPDATE)
		return append_update(text, rel, table, change);
	else
	{
		appendStringInfo(text, "DELETE FROM %s%s", table->only, table->name);
		append_where(text, table, &change->old_tuple);
	}
	return true;
}

static bool
append_change(StringInfo text, List *tables, const PapplyMessage *message)
{
	PapplyChange *change = palloc(sizeof(PapplyChange));
	const Table *table;
	Relation	rel;
	Oid			user;
	int			context;
	int			level;
	bool		has_effect;

	papply_message_parse_change(message, change);
	table = find_table(tables, change->remote_relid);
	check_rights(table);
	if (!OidIsValid(table->relid))
		return append_change_of(text, NULL, table, change);
	rel = table_open(table->relid, AccessShareLock);
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(rel->rd_rel->relowner, context | SECURITY_RESTRICTED_OPERATION);
	level = NewGUCNestLevel();
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
							 0, false);
	has_effect = append_change_of(text, rel, table, change);
	AtEOXact_GUC(false, level);
	SetUserIdAndSecContext(user, context);
	table_close(rel, NoLock);
	return has_effect;
}

/* Tables without a definition are left out: store.c.  Returns false if all are. */
static bool
append_truncate(StringInfo text, List *tables, char *message, int length)
{
	const char *separator = "TRUNCATE ";
	bool		cascade;
	bool		restart_sequences;
	ListCell   *cell;

	foreach(cell, papply_message_read_truncate(message, length, &cascade, &restart_sequences))
	{
		const Table *table = look_for_table(tables, lfirst_oid(cell));

		if (table == NULL)
			continue;
		check_rights(table);
		appendStringInfo(text, "%s%s%s", separator, table->only, table->name);
		separator = ", ";
	}
	if (restart_sequences)
		appendStringInfoString(text, " RESTART IDENTITY");
	return strcmp(separator, ", ") == 0;
}

/* Returns false if the message is not a change. */
static bool
append_statement(StringInfo text, List *tables, const PapplyMessage *message)
{
	switch (message->kind)
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			if (!append_change(text, tables, message))
				return false;
			break;
		case LOGICAL_REP_MSG_TRUNCATE:
			if (!append_truncate(text, tables, message->data, message->length))
				return false;
			break;
		default:
			return false;
	}
	appendStringInfoChar(text, ';');
	return true;
}

static void
put_statement(PapplyRow *row, int64 *number, List *tables, char *data, int length)
{
	PapplyMessage message = papply_message_read(data, length);
	StringInfoData text;

	initStringInfo(&text);
	if (!append_statement(&text, tables, &message))
		return;
	papply_row_int8(row, "number", ++*number, false);
	papply_row_text(row, "statement", text.data);
	papply_row_put(row);
}

uint64
papply_change_statements_put(FunctionCallInfo fcinfo, Oid subid, PapplyNextMessage next,
							 void *source)
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  PAPPLY_NAME " statement",
												  ALLOCSET_DEFAULT_SIZES);
	List	   *tables = NIL;
	int64		number = 0;
	uint64		messages = 0;
	int			length;
	char	   *message;

	while ((message = next(source, &length)) != NULL)
	{
		MemoryContext old_context;

		if (message[0] == LOGICAL_REP_MSG_RELATION)
		{
			tables = lappend(tables, read_table(message, length, subid));
			continue;
		}
		messages++;
		old_context = MemoryContextSwitchTo(context);
		put_statement(row, &number, tables, message, length);
		MemoryContextSwitchTo(old_context);
		MemoryContextReset(context);
	}
	return messages;
}

static char *
next_stored(void *source, int *length)
{
	return source == NULL ? NULL : papply_stored_next(source, length);
}

/*
 * papply_get_skipped_changes(id) returns the changes of a transaction that was skipped.
 */
Datum
papply_get_skipped_changes(PG_FUNCTION_ARGS)
{
	Oid			subid = papply_stored_subscription(PG_GETARG_INT64(0));
	PapplyStoredScan *scan = NULL;

	if (OidIsValid(subid))
		scan = papply_stored_begin_scan(PG_GETARG_INT64(0));
	if (scan != NULL)
		papply_sql_check_may_see(subid);
	(void) papply_change_statements_put(fcinfo, subid, next_stored, scan);
	if (scan != NULL)
		papply_stored_end_scan(scan);
	return (Datum) 0;
}
