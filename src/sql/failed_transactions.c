/*-------------------------------------------------------------------------
 * failed_transactions.c
 *	  The function behind parallel_apply.failed_transactions.
 *
 * Runs in a user's backend.  Data of a row is shown only to users who may read
 * it in the table.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "replication/logicalproto.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/pg_lsn.h"
#include "utils/timestamp.h"

#include "failed_values.h"
#include "result_rows.h"
#include "sql_common.h"
#include "statistics.h"

PG_FUNCTION_INFO_V1(papply_get_failed_transactions);

static const PapplyResultColumn failed_columns[] = {
	{"subid", OIDOID},
	{"remote_xid", XIDOID},
	{"commit_time", TIMESTAMPTZOID},
	{"finish_lsn", PG_LSNOID},
	{"first_failure", TIMESTAMPTZOID},
	{"last_failure", TIMESTAMPTZOID},
	{"attempts", INT8OID},
	{"sqlstate", TEXTOID},
	{"message", TEXTOID},
	{"change", INT8OID},
	{"detail", TEXTOID},
	{"schemaname", NAMEOID},
	{"relname", NAMEOID},
	{"operation", TEXTOID},
	{"key", TEXTOID}
};

#define FAILED_COLUMNS lengthof(failed_columns)
StaticAssertDecl(FAILED_COLUMNS == PAPPLY_FAILED_COLUMNS, "those of the header");

static bool
may_see_data(const PapplyFailedTransaction *failed)
{
	return papply_sql_may_read(papply_sql_find_table(failed->schema_name, failed->table_name));
}

static Datum
name_of(const char *text)
{
	return DirectFunctionCall1(namein, CStringGetDatum(text));
}

void
papply_failed_values(const PapplyStatistics *statistics, bool may_see, Datum *values, bool *nulls)
{
	const PapplyFailedTransaction *failed = &statistics->failed;
	bool		may_see_table = may_see && failed->table_name[0] != '\0';
	int			i = 0;

	memset(nulls, 0, FAILED_COLUMNS * sizeof(bool));
	values[i++] = ObjectIdGetDatum(statistics->subid);
	nulls[i] = !TransactionIdIsValid(failed->remote_xid);
	values[i++] = TransactionIdGetDatum(failed->remote_xid);
	nulls[i] = failed->commit_time == 0;
	values[i++] = TimestampTzGetDatum(failed->commit_time);
	values[i++] = LSNGetDatum(failed->final_lsn);
	values[i++] = TimestampTzGetDatum(failed->first_failed_at);
	values[i++] = TimestampTzGetDatum(failed->failed_at);
	values[i++] = Int64GetDatum(failed->attempts);
	values[i++] = CStringGetTextDatum(unpack_sql_state(failed->sqlerrcode));
	values[i++] = CStringGetTextDatum(failed->message);
	nulls[i] = failed->changes == 0;
	values[i++] = Int64GetDatum(failed->changes);
	nulls[i] = !may_see || failed->detail[0] == '\0';
	values[i++] = CStringGetTextDatum(failed->detail);
	nulls[i] = nulls[i + 1] = !may_see_table;
	values[i++] = name_of(failed->schema_name);
	values[i++] = name_of(failed->table_name);
	nulls[i] = !may_see;
	values[i++] = CStringGetTextDatum(logicalrep_message_type(failed->kind));
	nulls[i] = !may_see || failed->key[0] == '\0';
	values[i++] = CStringGetTextDatum(failed->key);
	Assert(i == FAILED_COLUMNS);
}

const PapplyStatistics *
papply_failed_get(Oid subid)
{
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));

	if (!papply_statistics_get(subid, statistics) || !papply_statistics_has_failed(statistics))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("subscription \"%s\" has no failing transaction",
						get_subscription_name(subid, false)),
				 errhint("Transactions that fail are shown by %s.",
						 PAPPLY_NAME ".failed_transactions")));
	return statistics;
}

static void
put_failed(PapplyResultRows *rows, const PapplyStatistics *statistics)
{
	Datum		values[FAILED_COLUMNS];
	bool		nulls[FAILED_COLUMNS];

	papply_failed_values(statistics, may_see_data(&statistics->failed), values, nulls);
	papply_result_rows_put(rows, values, nulls);
}

/*
 * papply_get_failed_transactions() returns a row for each subscription of the current
 * database whose last transaction failed, and was neither applied nor skipped since.
 */
Datum
papply_get_failed_transactions(PG_FUNCTION_ARGS)
{
	PapplyResultRows *rows = papply_result_rows_begin(fcinfo, failed_columns, FAILED_COLUMNS);
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
		if (papply_statistics_get(lfirst_oid(cell), statistics) &&
			papply_statistics_has_failed(statistics))
		put_failed(rows, statistics);
	return (Datum) 0;
}
