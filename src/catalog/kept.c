/*-------------------------------------------------------------------------
 * kept.c
 *	  Storage of skipped transactions.
 *
 * Runs in the receiver, which stores, and in a user's backend, which reads and
 * removes.
 *
 * There are two relations.  kept_transactions has a row for each transaction
 * that skip_transaction() should store, inserted by that function.
 * kept_messages has the messages that the publisher sent for it, one per row.
 * The apply worker inserts these in the local transaction that moves the
 * replication origin past the transaction (receiver/keep.c).  So a transaction
 * without messages has not been skipped yet: another one may have come first,
 * or its prepared transaction has not ended.  The row of a prepared transaction
 * gets its commit time, or is removed, just before that ends.
 *
 * Both are materialized views, because no other kind of relation has all the
 * required properties.  Their rows are transactional, survive a crash, and
 * reach standbys.  They are in no publication, not even in FOR ALL TABLES,
 * which would require them on its subscribers.  Users cannot change them.
 * (Tables are published, unlogged ones are lost in a crash, and vacuumlo
 * removes large objects.)  They are written like catalogs.  REFRESH
 * MATERIALIZED VIEW does not change them, because their query is a function
 * that reads them.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_subscription.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/pg_lsn.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "kept.h"

/* Columns of kept_messages. */
#define MESSAGE_ID 1
#define MESSAGE_NUMBER 2
#define MESSAGE_DATA 3
#define MESSAGE_COLUMNS 3

struct PapplyKeptScan
{
	Relation	messages;
	Relation	index;
	Snapshot	snapshot;
	SysScanDesc scan;
	MemoryContext context;		/* of the current message */
};

struct PapplyKeptWriter
{
	int64		id;
	int32		number;
	Relation	messages;
	CatalogIndexState indexes;
	MemoryContext context;
};

Relation
papply_kept_open(const char *name, LOCKMODE lock_mode)
{
	Oid			extension = get_extension_oid(PAPPLY_NAME, true);
	Oid			namespace = get_namespace_oid(PAPPLY_NAME, true);
	Oid			relid = InvalidOid;

	if (OidIsValid(extension) && OidIsValid(namespace))
		relid = get_relname_relid(name, namespace);

	/*
	 * while the extension is being created, the view is not a member of it
	 * yet
	 */
	if (!OidIsValid(relid) || get_rel_relkind(relid) != RELKIND_MATVIEW ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return NULL;

	/* DROP EXTENSION may have been committed while this waited for the lock */
	return try_table_open(relid, lock_mode);
}

/*** transactions ***/

/* Called for each row that matches.  Returns false to stop. */
typedef bool (*Visit) (Relation rel, HeapTuple tuple, void *arg);

static void
visit(Relation rel, ScanKeyData *keys, int nkeys, Visit function, void *arg)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, snapshot, nkeys, keys);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)) && function(rel, tuple, arg))
		;
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
}

static void
visit_transactions(PapplyKeptColumn column, RegProcedure equal, Datum value,
				   LOCKMODE lock_mode, Visit function, void *arg)
{
	Relation	rel = papply_kept_open(PAPPLY_KEPT_TRANSACTIONS, lock_mode);
	ScanKeyData key;

	if (rel == NULL)
		return;
	ScanKeyInit(&key, column, BTEqualStrategyNumber, equal, value);
	visit(rel, &key, 1, function, arg);
	table_close(rel, NoLock);
}

static Datum
column_of(Relation rel, HeapTuple tuple, int column)
{
	bool		is_null;

	return heap_getattr(tuple, column, RelationGetDescr(rel), &is_null);
}

static int64
id_of(Relation rel, HeapTuple tuple)
{
	return DatumGetInt64(column_of(rel, tuple, PAPPLY_KEPT_ID));
}

typedef struct Wanted
{
	XLogRecPtr	finish_lsn;
	int64		id;
} Wanted;

static bool
find_lsn(Relation rel, HeapTuple tuple, void *arg)
{
	Wanted	   *wanted = arg;

	if (DatumGetLSN(column_of(rel, tuple, PAPPLY_KEPT_FINISH_LSN)) == wanted->finish_lsn)
		wanted->id = id_of(rel, tuple);
	return wanted->id == 0;
}

int64
papply_kept_find(Oid subid, XLogRecPtr finish_lsn)
{
	Wanted		wanted = {finish_lsn, 0};

	visit_transactions(PAPPLY_KEPT_SUBID, F_OIDEQ, ObjectIdGetDatum(subid), AccessShareLock,
					   find_lsn, &wanted);
	return wanted.id;
}

static bool
find_greatest_id(Relation rel, HeapTuple tuple, void *arg)
{
	int64	   *greatest = arg;

	*greatest = Max(*greatest, id_of(rel, tuple));
	return true;
}

int64
papply_kept_next_id(Relation transactions)
{
	int64		greatest = 0;

	visit(transactions, NULL, 0, find_greatest_id, &greatest);
	return greatest + 1;
}

static bool
get_subscription(Relation rel, HeapTuple tuple, void *arg)
{
	*(Oid *) arg = DatumGetObjectId(column_of(rel, tuple, PAPPLY_KEPT_SUBID));
	return false;
}

Oid
papply_kept_subscription(int64 id)
{
	Oid			subid = InvalidOid;

	visit_transactions(PAPPLY_KEPT_ID, F_INT8EQ, Int64GetDatum(id), AccessShareLock,
					   get_subscription, &subid);
	return subid;
}

static bool
get_commit_time(Relation rel, HeapTuple tuple, void *arg)
{
	bool		is_null;
	Datum		value = heap_getattr(tuple, PAPPLY_KEPT_COMMIT_TIME, RelationGetDescr(rel), &is_null);

	*(TimestampTz *) arg = is_null ? 0 : DatumGetTimestampTz(value);
	return false;
}

TimestampTz
papply_kept_commit_time(int64 id)
{
	TimestampTz commit_time = 0;

	visit_transactions(PAPPLY_KEPT_ID, F_INT8EQ, Int64GetDatum(id), AccessShareLock,
					   get_commit_time, &commit_time);
	return commit_time;
}

/*
 * Does function, which stores a bool in *arg, find a row?  The lock waits for
 * prepared transactions, which may have inserted messages.
 */
static bool
has_row(const char *name, Visit function)
{
	Relation	rel = papply_kept_open(name, ShareLock);
	bool		found = false;

	if (rel == NULL)
		return false;
	visit(rel, NULL, 0, function, &found);
	table_close(rel, NoLock);
	return found;
}

static bool
note_existence(Relation rel, HeapTuple tuple, void *arg)
{
	*(bool *) arg = true;
	return false;
}

bool
papply_kept_exist(void)
{
	return has_row(PAPPLY_KEPT_MESSAGES, note_existence);
}

/* Will the server skip the transaction when it arrives? */
static bool
is_pending(Relation rel, HeapTuple tuple)
{
	Oid			subid = DatumGetObjectId(column_of(rel, tuple, PAPPLY_KEPT_SUBID));
	HeapTuple	subscription = SearchSysCache1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid));
	bool		result;

	if (!HeapTupleIsValid(subscription))
		return false;
	result = ((Form_pg_subscription) GETSTRUCT(subscription))->subskiplsn ==
		DatumGetLSN(column_of(rel, tuple, PAPPLY_KEPT_FINISH_LSN));
	ReleaseSysCache(subscription);
	return result;
}

static bool
find_pending(Relation rel, HeapTuple tuple, void *arg)
{
	*(bool *) arg = is_pending(rel, tuple);
	return !*(bool *) arg;
}

bool
papply_kept_are_pending(void)
{
	return has_row(PAPPLY_KEPT_TRANSACTIONS, find_pending);
}

static bool
has_messages(int64 id)
{
	PapplyKeptScan *scan = papply_kept_begin_scan(id);
	bool		has_any;

	if (scan == NULL)
		return false;
	has_any = HeapTupleIsValid(systable_getnext_ordered(scan->scan, ForwardScanDirection));
	papply_kept_end_scan(scan);
	return has_any;
}

/* Is a prepared transaction, or an apply worker, storing messages? */
static bool
is_being_stored(Relation messages)
{
	if (!ConditionalLockRelation(messages, ShareLock))
		return true;
	UnlockRelation(messages, ShareLock);
	return false;
}

typedef struct Requests
{
	bool		is_being_stored;	/* any transaction */
	bool		found;
} Requests;

static bool
find_request(Relation rel, HeapTuple tuple, void *arg)
{
	Requests   *requests = arg;

	requests->found = is_pending(rel, tuple) ||
		(requests->is_being_stored && !has_messages(id_of(rel, tuple)));
	return !requests->found;
}

bool
papply_kept_has_requests(Oid subid)
{
	Relation	messages = papply_kept_open(PAPPLY_KEPT_MESSAGES, AccessShareLock);
	Requests	requests = {false, false};

	if (messages == NULL)
		return false;
	requests.is_being_stored = is_being_stored(messages);
	visit_transactions(PAPPLY_KEPT_SUBID, F_OIDEQ, ObjectIdGetDatum(subid), AccessShareLock,
					   find_request, &requests);
	table_close(messages, NoLock);
	return requests.found;
}

/*** removal ***/

static bool
remove_row(Relation rel, HeapTuple tuple, void *arg)
{
	CHECK_FOR_INTERRUPTS();
	CatalogTupleDelete(rel, &tuple->t_self);
	(*(uint64 *) arg)++;
	return true;
}

static uint64
remove_messages(int64 id)
{
	PapplyKeptScan *scan = papply_kept_begin_scan(id);
	HeapTuple	tuple;
	uint64		removed = 0;

	if (scan == NULL)
		return 0;
	LockRelationOid(RelationGetRelid(scan->messages), RowExclusiveLock);
	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan->scan, ForwardScanDirection)))
		(void) remove_row(scan->messages, tuple, &removed);
	papply_kept_end_scan(scan);
	return removed;
}

/*
 * The messages are read after the skip LSN: the transaction that clears it
 * stores them.
 */
static bool
remove_unless_used(Relation rel, HeapTuple tuple, void *arg)
{
	uint64		removed = 0;

	return is_pending(rel, tuple) || has_messages(id_of(rel, tuple)) ||
		remove_row(rel, tuple, &removed);
}

void
papply_kept_remove_unused(Relation transactions)
{
	Relation	messages = papply_kept_open(PAPPLY_KEPT_MESSAGES, AccessShareLock);

	/* no transaction may begin to store any meanwhile */
	if (ConditionalLockRelation(messages, ShareLock))
	{
		visit(transactions, NULL, 0, remove_unless_used, NULL);
		UnlockRelation(messages, ShareLock);
	}
	table_close(messages, NoLock);
}

uint64
papply_kept_remove(int64 id)
{
	uint64		removed = 0;

	visit_transactions(PAPPLY_KEPT_ID, F_INT8EQ, Int64GetDatum(id), RowExclusiveLock,
					   remove_row, &removed);
	return removed > 0 ? remove_messages(id) : 0;
}

static bool
remove_transaction(Relation rel, HeapTuple tuple, void *arg)
{
	uint64		removed = 0;

	*(int *) arg += remove_messages(id_of(rel, tuple)) > 0;
	return remove_row(rel, tuple, &removed);
}

int
papply_kept_remove_all(Oid subid)
{
	int			removed = 0;

	visit_transactions(PAPPLY_KEPT_SUBID, F_OIDEQ, ObjectIdGetDatum(subid), RowExclusiveLock,
					   remove_transaction, &removed);
	return removed;
}

/*** the end of a prepared transaction ***/

typedef struct End
{
	TransactionId remote_xid;
	XLogRecPtr	end_lsn;
	TimestampTz commit_time;	/* 0: it is rolled back */
} End;

/* Its messages, which the prepared transaction has stored, are not visible yet. */
static bool
is_prepared(Relation rel, HeapTuple tuple, const End *end)
{
	return DatumGetTransactionId(column_of(rel, tuple, PAPPLY_KEPT_REMOTE_XID)) == end->remote_xid &&
		DatumGetLSN(column_of(rel, tuple, PAPPLY_KEPT_FINISH_LSN)) < end->end_lsn &&
		!has_messages(id_of(rel, tuple));
}

static void
set_commit_time(Relation rel, HeapTuple tuple, TimestampTz commit_time)
{
	Datum		values[PAPPLY_KEPT_COLUMNS] = {0};
	bool		nulls[PAPPLY_KEPT_COLUMNS] = {false};
	bool		replaces[PAPPLY_KEPT_COLUMNS] = {false};

	values[PAPPLY_KEPT_COMMIT_TIME - 1] = TimestampTzGetDatum(commit_time);
	replaces[PAPPLY_KEPT_COMMIT_TIME - 1] = true;
	CatalogTupleUpdate(rel, &tuple->t_self,
					   heap_modify_tuple(tuple, RelationGetDescr(rel), values, nulls, replaces));
}

static bool
end_prepared(Relation rel, HeapTuple tuple, void *arg)
{
	End		   *end = arg;

	if (!is_prepared(rel, tuple, end))
		return true;
	if (end->commit_time == 0)
		CatalogTupleDelete(rel, &tuple->t_self);
	else
		set_commit_time(rel, tuple, end->commit_time);
	return false;
}

void
papply_kept_end_prepared(Oid subid, TransactionId remote_xid, XLogRecPtr end_lsn,
						 TimestampTz commit_time)
{
	End			end = {remote_xid, end_lsn, commit_time};

	visit_transactions(PAPPLY_KEPT_SUBID, F_OIDEQ, ObjectIdGetDatum(subid), RowExclusiveLock,
					   end_prepared, &end);
}

/*** messages ***/

PapplyKeptScan *
papply_kept_begin_scan(int64 id)
{
	Relation	messages = papply_kept_open(PAPPLY_KEPT_MESSAGES, AccessShareLock);
	PapplyKeptScan *scan;
	ScanKeyData key;

	if (messages == NULL)
		return NULL;
	scan = palloc(sizeof(PapplyKeptScan));
	scan->messages = messages;
	scan->index = index_open(linitial_oid(RelationGetIndexList(messages)), AccessShareLock);
	scan->snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan->context = AllocSetContextCreate(CurrentMemoryContext, PAPPLY_NAME " kept message",
										  ALLOCSET_DEFAULT_SIZES);
	ScanKeyInit(&key, MESSAGE_ID, BTEqualStrategyNumber, F_INT8EQ, Int64GetDatum(id));
	scan->scan = systable_beginscan_ordered(messages, scan->index, scan->snapshot, 1, &key);
	return scan;
}

char *
papply_kept_next(PapplyKeptScan *scan, int *length)
{
	HeapTuple	tuple = systable_getnext_ordered(scan->scan, ForwardScanDirection);
	MemoryContext old_context;
	bytea	   *data;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(scan->context);
	old_context = MemoryContextSwitchTo(scan->context);
	data = DatumGetByteaPCopy(column_of(scan->messages, tuple, MESSAGE_DATA));
	MemoryContextSwitchTo(old_context);
	*length = VARSIZE_ANY_EXHDR(data);
	return VARDATA_ANY(data);
}

void
papply_kept_end_scan(PapplyKeptScan *scan)
{
	systable_endscan_ordered(scan->scan);
	UnregisterSnapshot(scan->snapshot);
	index_close(scan->index, NoLock);
	table_close(scan->messages, NoLock);
	MemoryContextDelete(scan->context);
	pfree(scan);
}

PapplyKeptWriter *
papply_kept_begin_writing(int64 id)
{
	PapplyKeptWriter *writer = palloc(sizeof(PapplyKeptWriter));

	writer->id = id;
	writer->number = 0;
	writer->messages = papply_kept_open(PAPPLY_KEPT_MESSAGES, RowExclusiveLock);
	if (writer->messages == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"%s\" does not exist", PAPPLY_NAME)));
	writer->indexes = CatalogOpenIndexes(writer->messages);
	writer->context = AllocSetContextCreate(CurrentMemoryContext, PAPPLY_NAME " kept message",
											ALLOCSET_DEFAULT_SIZES);
	return writer;
}

void
papply_kept_write(PapplyKeptWriter *writer, const char *message, int length)
{
	MemoryContext old_context = MemoryContextSwitchTo(writer->context);
	Datum		values[MESSAGE_COLUMNS];
	bool		nulls[MESSAGE_COLUMNS] = {false};
	HeapTuple	tuple;

	CHECK_FOR_INTERRUPTS();
	values[MESSAGE_ID - 1] = Int64GetDatum(writer->id);
	values[MESSAGE_NUMBER - 1] = Int32GetDatum(++writer->number);
	values[MESSAGE_DATA - 1] = PointerGetDatum(cstring_to_text_with_len(message, length));
	tuple = heap_form_tuple(RelationGetDescr(writer->messages), values, nulls);
	CatalogTupleInsertWithInfo(writer->messages, tuple, writer->indexes);
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(writer->context);
}

void
papply_kept_end_writing(PapplyKeptWriter *writer)
{
	CatalogCloseIndexes(writer->indexes);
	table_close(writer->messages, NoLock);
	MemoryContextDelete(writer->context);
	pfree(writer);
}

void
papply_kept_refuse_missing(int64 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("skipped transaction %lld does not exist", (long long) id),
			 errhint("Skipped transactions are shown by %s.",
					 PAPPLY_NAME ".skipped_transactions")));
}
