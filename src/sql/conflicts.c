/*-------------------------------------------------------------------------
 * conflicts.c
 *	  The function behind parallel_apply.conflicts.
 *
 * Runs in a user's backend.  The key of a row is shown only to users who may
 * read it in the table.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "result_rows.h"
#include "sql_common.h"
#include "table_statistics.h"

PG_FUNCTION_INFO_V1(papply_get_conflicts);

static void
put_conflicts(PapplyRow *row, const PapplyTableStatistics *statistics)
{
	const PapplyTableRecord *record = &statistics->record;
	const PapplyConflict *last = &record->last_conflict;
	bool		shows_key = last->key[0] != '\0' && papply_sql_may_read(record->relid);

	papply_row_oid(row, "subid", record->subid);
	papply_row_oid(row, "relid", record->relid);
	for (int type = 0; type < PAPPLY_CONFLICT_TYPES; type++)
		papply_row_int8(row, papply_conflict_type_name(type),
						statistics->counters[PAPPLY_TABLE_CONFLICTS + type], false);
	papply_row_text(row, "last_conflict", papply_conflict_type_name(last->type));
	papply_row_text(row, "last_conflict_key", shows_key ? last->key : NULL);
	papply_row_time(row, "last_conflict_time", last->at);
	papply_row_put(row);
}

/*
 * papply_get_conflicts() returns a row for each table of the current database
 * that had a conflict.
 */
Datum
papply_get_conflicts(PG_FUNCTION_ARGS)
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	PapplyTableStatistics statistics;

	for (int n = 0; papply_table_statistics_get_nth(n, &statistics); n++)
		if (statistics.record.last_conflict.at != 0 &&
			statistics.record.dbid == MyDatabaseId &&
			papply_sql_may_see(statistics.record.subid))
			put_conflicts(row, &statistics);
	return (Datum) 0;
}
