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

#include "hot_keys.h"
#include "result_rows.h"
#include "sql_common.h"

PG_FUNCTION_INFO_V1(papply_get_hot_keys);

static const char *
name_of_cause(const PapplyHotKey *entry)
{
	if (entry->is_barrier)
		return "barrier";
	return OidIsValid(entry->key.index) ? "unique index" : "replica identity";
}

static void
put_key(PapplyRow *row, Oid subid, const PapplyHotKey *entry)
{
	bool		is_key = entry->key.hash != 0;
	bool		shows_values = is_key && entry->values[0] != '\0' && papply_sql_may_read(entry->relid);

	papply_row_oid(row, "subid", subid);
	papply_row_oid(row, "relid", entry->relid);
	papply_row_text(row, "cause", name_of_cause(entry));
	papply_row_oid(row, "indexrelid", entry->key.index);
	papply_row_value(row, "key_hash", INT4OID, Int32GetDatum(entry->key.hash), !is_key);
	papply_row_text(row, "key", shows_values ? entry->values : NULL);
	papply_row_int8(row, "waits", entry->waits, false);
	papply_row_int8(row, "max_error", entry->max_error, false);
	papply_row_value(row, "wait_time", FLOAT8OID, Float8GetDatum(entry->us / 1000.0), false);
	papply_row_time(row, "last_wait", entry->last_wait);
	papply_row_put(row);
}

static void
put_keys(PapplyRow *row, Oid subid, const PapplyHotKey *entries, int length)
{
	for (int i = 0; i < length; i++)
		if (entries[i].waits > 0)
			put_key(row, subid, &entries[i]);
}

/*
 * papply_get_hot_keys() returns a row for each key that is kept of the current
 * database, and for all keys of an index together.
 */
Datum
papply_get_hot_keys(PG_FUNCTION_ARGS)
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	PapplyHotKeys *keys = palloc(sizeof(PapplyHotKeys));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		Oid			subid = lfirst_oid(cell);

		if (!papply_hot_keys_get(subid, keys))
			continue;
		put_keys(row, subid, keys->indexes, PAPPLY_HOT_INDEXES);
		put_keys(row, subid, keys->keys, PAPPLY_HOT_KEYS);
	}
	return (Datum) 0;
}
