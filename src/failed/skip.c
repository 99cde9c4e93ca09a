/*-------------------------------------------------------------------------
 * skip.c
 *	  SQL functions that skip the failing transaction, and forget a skipped
 *	  one.
 *
 * Runs in a user's backend.
 *
 * skip_transaction() leaves the skipping to the server: it sets the skip LSN
 * to the position that failed_transactions shows.  The server skips the
 * transaction that finishes there if it arrives first, otherwise it clears the
 * position with a warning.  A row in kept_transactions, written in the same
 * local transaction, makes the apply worker store the skipped transaction.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/table.h"
#include "catalog/indexing.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "replication/logicalproto.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "../sql/sql_common.h"
#include "failed.h"
#include "statistics.h"
#include "stored.h"

PG_FUNCTION_INFO_V1(papply_skip_transaction);
PG_FUNCTION_INFO_V1(papply_forget);
PG_FUNCTION_INFO_V1(papply_get_kept);

static void
check_kind(char kind)
{
	/* the transaction would stay prepared */
	if (kind == LOGICAL_REP_MSG_COMMIT_PREPARED || kind == LOGICAL_REP_MSG_ROLLBACK_PREPARED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot skip the end of a prepared transaction")));
}

static void
set_skip_lsn(const char *subname, XLogRecPtr lsn)
{
	char	   *command = psprintf("ALTER SUBSCRIPTION %s SKIP (lsn = '" PAPPLY_LSN_FORMAT "')",
								   quote_identifier(subname), LSN_FORMAT_ARGS(lsn));

	SPI_connect();
	if (SPI_execute(command, false, 0) != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\"", command);
	SPI_finish();
}

static int64
request(FunctionCallInfo fcinfo, const PapplyStatistics *statistics)
{
	Relation	rel = papply_stored_open(PAPPLY_STORED_TRANSACTIONS, ShareRowExclusiveLock);
	int64		id = papply_stored_find(statistics->subid, statistics->failed.final_lsn);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"%s\" does not exist", PAPPLY_NAME)));
	if (id == 0)
	{
		PapplyRow  *row = papply_row_create(fcinfo, RelationGetDescr(rel));

		papply_stored_remove_unused();
		id = papply_stored_next_id();
		papply_row_int8(row, "id", id, false);
		papply_failed_set(row, statistics, true);
		CatalogTupleInsert(rel, papply_row_form(row));
	}
	table_close(rel, NoLock);
	return id;
}

int64
papply_skip_failed(FunctionCallInfo fcinfo, const PapplyStatistics *statistics, bool must_store)
{
	XLogRecPtr	finish_lsn = statistics->failed.final_lsn;
	int64		id;

	check_kind(statistics->failed.kind);
	set_skip_lsn(get_subscription_name(statistics->subid, false), finish_lsn);
	if (must_store)
		return request(fcinfo, statistics);
	id = papply_stored_find(statistics->subid, finish_lsn);
	if (id != 0)				/* else its lock is not needed */
		(void) papply_stored_remove(id);
	return 0;
}

/*
 * papply_skip_transaction(subscription, keep) skips the failing transaction.
 * Returns the number under which it is stored, or NULL if it is not stored.
 */
Datum
papply_skip_transaction(PG_FUNCTION_ARGS)
{
	Oid			subid = papply_sql_change_subscription(fcinfo, 0, "skip_transaction()");
	bool		must_store = PG_ARGISNULL(1) || PG_GETARG_BOOL(1);
	int64		id = papply_skip_failed(fcinfo, papply_failed_get(subid), must_store);

	if (!must_store)
		PG_RETURN_NULL();
	PG_RETURN_INT64(id);
}

Oid
papply_skip_subscription(int64 id)
{
	Oid			subid = papply_stored_subscription(id);

	if (!OidIsValid(subid))
		papply_stored_refuse_missing(id);
	papply_sql_check_owner(subid);
	return subid;
}

/*
 * papply_forget(id) removes a transaction that was stored.
 */
Datum
papply_forget(PG_FUNCTION_ARGS)
{
	int64		id = PG_GETARG_INT64(0);

	PreventCommandIfReadOnly("forget()");
	(void) papply_skip_subscription(id);
	if (papply_stored_remove(id) == 0)
		papply_stored_refuse_missing(id);
	PG_RETURN_VOID();
}

/*
 * papply_get_kept(relation) returns the rows of one of the two relations, for their own
 * definitions: see stored.c.  The server compares the two.  The snapshot is taken when
 * REFRESH has locked the relation.
 */
Datum
papply_get_kept(PG_FUNCTION_ARGS)
{
	Relation	rel = papply_stored_open(NameStr(*PG_GETARG_NAME(0)), AccessShareLock);
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	SysScanDesc scan;
	HeapTuple	tuple;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC); /* a copy: the executor
															 * frees it */
	if (rel == NULL)
		return (Datum) 0;		/* it is being created */
	result->setDesc = CreateTupleDescCopy(RelationGetDescr(rel));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		tuplestore_puttuple(result->setResult, tuple);
	systable_endscan(scan);
	table_close(rel, NoLock);
	return (Datum) 0;
}
