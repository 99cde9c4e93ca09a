/*-------------------------------------------------------------------------
 * conflicts.c
 *	  The function behind parallel_apply.conflicts.
 *
 * Runs in a user's backend.  The key of a row is shown only to users who may
 * read it in the table.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "result_rows.h"
#include "sql_common.h"
#include "table_statistics.h"

PG_FUNCTION_INFO_V1(papply_get_conflicts);

/* The counters are in the order of PapplyConflictType. */
static const PapplyResultColumn conflict_columns[] = {
	{"subid", OIDOID},
	{"relid", OIDOID},
	{"insert_exists", INT8OID},
	{"update_origin_differs", INT8OID},
	{"update_exists", INT8OID},
	{"update_missing", INT8OID},
	{"delete_origin_differs", INT8OID},
	{"delete_missing", INT8OID},
	{"multiple_unique_conflicts", INT8OID},
	{"last_conflict", TEXTOID},
	{"last_conflict_key", TEXTOID},
	{"last_conflict_time", TIMESTAMPTZOID}
};

#define CONFLICTS_COLUMNS lengthof(conflict_columns)

StaticAssertDecl(CONFLICTS_COLUMNS == PAPPLY_CONFLICT_TYPES + 5, "each type has a column");

static void
put_conflicts(PapplyResultRows *rows, const PapplyTableStatistics *statistics)
{
	const PapplyTableRecord *record = &statistics->record;
	const PapplyConflict *last = &record->last_conflict;
	Datum		values[CONFLICTS_COLUMNS];
	bool		nulls[CONFLICTS_COLUMNS] = {false};
	int			i = 0;

	values[i++] = ObjectIdGetDatum(record->subid);
	values[i++] = ObjectIdGetDatum(record->relid);
	for (int type = 0; type < PAPPLY_CONFLICT_TYPES; type++)
		values[i++] = Int64GetDatum(statistics->counters[PAPPLY_TABLE_CONFLICTS + type]);
	values[i++] = CStringGetTextDatum(papply_conflict_type_name(last->type));
	nulls[i] = last->key[0] == '\0' || !papply_sql_may_read(record->relid);
	values[i++] = CStringGetTextDatum(last->key);
	values[i++] = TimestampTzGetDatum(last->at);
	Assert(i == CONFLICTS_COLUMNS);
	papply_result_rows_put(rows, values, nulls);
}

/*
 * papply_get_conflicts() returns a row for each table of the current database
 * that had a conflict.
 */
Datum
papply_get_conflicts(PG_FUNCTION_ARGS)
{
	PapplyResultRows *rows = papply_result_rows_begin(fcinfo, conflict_columns, CONFLICTS_COLUMNS);
	PapplyTableStatistics statistics;

	for (int n = 0; papply_table_statistics_get_nth(n, &statistics); n++)
		if (statistics.record.last_conflict.at != 0 &&
			statistics.record.dbid == MyDatabaseId &&
			papply_sql_may_see(statistics.record.subid))
			put_conflicts(rows, &statistics);
	return (Datum) 0;
}
