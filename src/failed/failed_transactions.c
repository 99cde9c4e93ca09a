/*-------------------------------------------------------------------------
 * failed_transactions.c
 *	  The function behind parallel_apply.failed_transactions.
 *
 * Runs in a user's backend.  Data of a row is shown only to users who may read
 * it in the table.  A trigger of that table may fail with the data of another
 * one, which is not shown at all.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/partition.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "nodes/pg_list.h"
#include "replication/logicalproto.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "../sql/sql_common.h"
#include "failed.h"
#include "statistics.h"

PG_FUNCTION_INFO_V1(papply_get_failed_transactions);

/*
 * Does the error name no other table?  A partition has rows of the table that
 * users read.
 */
static bool
is_of_table(const PapplyFailedTransaction *failed)
{
	Oid			relid;

	if (failed->error_table_name[0] == '\0' ||
		(strcmp(failed->error_table_name, failed->table_name) == 0 &&
		 strcmp(failed->error_schema_name, failed->schema_name) == 0))
		return true;
	relid = papply_sql_find_table(failed->error_schema_name, failed->error_table_name);
	return OidIsValid(relid) &&
		list_member_oid(get_partition_ancestors(relid),
						papply_sql_find_table(failed->schema_name, failed->table_name));
}

static void
set_name(PapplyRow *row, const char *column, const char *name, bool is_null)
{
	papply_row_value(row, column, NAMEOID, DirectFunctionCall1(namein, CStringGetDatum(name)), is_null);
}

static void
set_text(PapplyRow *row, const char *column, const char *text, bool may_see)
{
	papply_row_text(row, column, may_see && text[0] != '\0' ? text : NULL);
}

void
papply_failed_set(PapplyRow *row, const PapplyStatistics *statistics, bool may_see)
{
	const PapplyFailedTransaction *failed = &statistics->failed;
	bool		may_see_table = may_see && failed->table_name[0] != '\0';
	bool		may_see_error = may_see && is_of_table(failed);

	papply_row_oid(row, "subid", statistics->subid);
	papply_row_value(row, "remote_xid", XIDOID, TransactionIdGetDatum(failed->remote_xid),
					 !TransactionIdIsValid(failed->remote_xid));
	papply_row_time(row, "commit_time", failed->commit_time);
	papply_row_lsn(row, "finish_lsn", failed->final_lsn);
	papply_row_time(row, "first_failure", failed->first_failed_at);
	papply_row_time(row, "last_failure", failed->failed_at);
	papply_row_int8(row, "attempts", failed->attempts, false);
	papply_row_text(row, "sqlstate", unpack_sql_state(failed->sqlerrcode));
	papply_row_text(row, "message", failed->message);
	papply_row_int8(row, "change", failed->changes, failed->changes == 0);
	set_text(row, "detail", failed->detail, may_see_error);
	set_text(row, "context", failed->context, may_see_error);
	set_name(row, "schemaname", failed->schema_name, !may_see_table);
	set_name(row, "relname", failed->table_name, !may_see_table);
	papply_row_text(row, "operation", may_see ? logicalrep_message_type(failed->kind) : NULL);
	set_text(row, "key", failed->key, may_see);
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

/*
 * papply_get_failed_transactions() returns a row for each subscription of the current
 * database whose last transaction failed, and was neither applied nor skipped since.
 */
Datum
papply_get_failed_transactions(PG_FUNCTION_ARGS)
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	PapplyStatistics *statistics = palloc(sizeof(PapplyStatistics));
	ListCell   *cell;

	foreach(cell, papply_sql_visible_subscriptions())
	{
		const PapplyFailedTransaction *failed = &statistics->failed;

		if (!papply_statistics_get(lfirst_oid(cell), statistics) ||
			!papply_statistics_has_failed(statistics))
			continue;
		papply_failed_set(row, statistics,
						  papply_sql_may_see_data(statistics->subid, failed->schema_name,
												  failed->table_name));
		papply_row_put(row);
	}
	return (Datum) 0;
}
