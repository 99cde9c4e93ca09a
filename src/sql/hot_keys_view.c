/*-------------------------------------------------------------------------
 * hot_keys_view.c
 *	  The function behind the view of hot keys.
 *
 * Runs in a user's backend.  Values of keys are shown only to users who may
 * read them in the table.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "hot_keys.h"
#include "result_rows.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_get_hot_keys);

static const PapplyResultColumn key_columns[] = {
	{"subid", OIDOID},
	{"relid", OIDOID},
	{"cause", TEXTOID},
	{"indexrelid", OIDOID},
	{"key_hash", INT4OID},
	{"key", TEXTOID},
	{"waits", INT8OID},
	{"max_error", INT8OID},
	{"wait_time", FLOAT8OID},
	{"last_wait", TIMESTAMPTZOID}
};

#define HOT_KEYS_COLUMNS lengthof(key_columns)

static const char *
name_of_cause(const PapplyHotKey *entry)
{
	if (entry->is_barrier)
		return "barrier";
	return OidIsValid(entry->key.index) ? "unique index" : "replica identity";
}

static void
put_key(PapplyResultRows *rows, Oid subid, const PapplyHotKey *entry)
{
	bool		is_key = entry->key.hash != 0;
	Datum		values[HOT_KEYS_COLUMNS];
	bool		nulls[HOT_KEYS_COLUMNS] = {false};
	int			i = 0;

	values[i++] = ObjectIdGetDatum(subid);
	values[i++] = ObjectIdGetDatum(entry->relid);
	values[i++] = CStringGetTextDatum(name_of_cause(entry));
	nulls[i] = !OidIsValid(entry->key.index);
	values[i++] = ObjectIdGetDatum(entry->key.index);
	nulls[i] = !is_key;
	values[i++] = Int32GetDatum(entry->key.hash);
	nulls[i] = !is_key || entry->values[0] == '\0' || !papply_sql_may_read(entry->relid);
	values[i++] = CStringGetTextDatum(entry->values);
	values[i++] = Int64GetDatum(entry->waits);
	values[i++] = Int64GetDatum(entry->max_error);
	values[i++] = Float8GetDatum(entry->us / 1000.0);
	values[i++] = TimestampTzGetDatum(entry->last_wait);
	Assert(i == HOT_KEYS_COLUMNS);
	papply_result_rows_put(rows, values, nulls);
}

static void
put_keys(PapplyResultRows *rows, Oid subid, const PapplyHotKey *entries, int length)
{
	for (int i = 0; i < length; i++)
		if (entries[i].waits > 0 &&
			SearchSysCacheExists1(RELOID, ObjectIdGetDatum(entries[i].relid)))
			put_key(rows, subid, &entries[i]);
}

/*
 * papply_get_hot_keys() returns a row for each key that is kept of the current
 * database, and for all keys of an index together.
 */
Datum
papply_get_hot_keys(PG_FUNCTION_ARGS)
{
	PapplyResultRows *rows = papply_result_rows_begin(fcinfo, key_columns, HOT_KEYS_COLUMNS);
	PapplyHotKeys *keys = palloc(sizeof(PapplyHotKeys));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		Oid			subid = lfirst_oid(cell);

		if (!papply_hot_keys_get(subid, keys))
			continue;
		put_keys(rows, subid, keys->indexes, PAPPLY_HOT_INDEXES);
		put_keys(rows, subid, keys->keys, PAPPLY_HOT_KEYS);
	}
	return (Datum) 0;
}
