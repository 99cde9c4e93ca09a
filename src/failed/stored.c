/*-------------------------------------------------------------------------
 * stored.c
 *	  Storage of skipped transactions.
 *
 * Runs in the receiver, which stores, and in a user's backend, which reads and
 * removes.
 *
 * There are two relations.  kept_transactions has a row for each transaction
 * that skip_transaction() should store, inserted by that function.
 * kept_messages has the messages that the publisher sent for it, one per row.
 * The apply worker inserts these in the local transaction that moves the
 * replication origin past the transaction (store.c).  So a transaction
 * without messages has not been skipped yet: another one may have come first,
 * or its prepared transaction has not ended.  The row of a prepared transaction
 * gets its commit time, or is removed, just before that ends.
 *
 * The prepared transaction holds locks on both relations until it ends.  A session that
 * requests AccessExclusiveLock, for example of VACUUM FULL, waits for it, and other
 * requests wait behind that session.  The apply worker must not: the end of the prepared
 * transaction comes from the publisher, so no deadlock would be found.  So before that
 * end it locks a relation only if it need not wait.  Otherwise the row
 * keeps the time of the PREPARE, or is removed later if it is not needed.
 *
 * A number is never used again: a user who repeats replay() after a lost
 * connection must not apply another transaction.  So when the row with the
 * greatest number is removed, an empty row keeps the number until there is a
 * greater one.
 *
 * Both are materialized views, because no other kind of relation has all the
 * required properties.  Their rows are transactional, survive a crash, and
 * reach standbys.  They are in no publication, not even in FOR ALL TABLES,
 * which would require them on its subscribers.  Users cannot change them.
 * (Tables are published, unlogged ones are lost in a crash, and vacuumlo
 * removes large objects.)  They are written like catalogs.  REFRESH
 * MATERIALIZED VIEW does not change them, because their query is a function
 * that reads them; WITH NO DATA is refused (sql/drop_extension.c).
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
#include "utils/syscache.h"

#include "stored.h"

/* Columns of kept_messages. */
#define MESSAGE_ID 1
#define MESSAGE_NUMBER 2
#define MESSAGE_DATA 3
#define MESSAGE_COLUMNS 3

struct PapplyStoredScan
{
	Relation	messages;
	Relation	index;
	SysScanDesc scan;
	MemoryContext context;		/* of the current message */
};

/* A row of kept_transactions. */
typedef struct Row
{
	HeapTuple	tuple;
	int64		id;
	Oid			subid;
	TransactionId remote_xid;
	TimestampTz commit_time;	/* 0 if it is not known */
	XLogRecPtr	finish_lsn;
} Row;

static PapplyStoredScan *begin_scan(int64 id, StrategyNumber strategy, RegProcedure procedure);

bool
papply_stored_is_relation(Oid relid)
{
	Oid			extension = get_extension_oid(PAPPLY_NAME, true);

	/*
	 * While the extension is being created, the view is not a member of it
	 * yet.
	 */
	return OidIsValid(extension) && get_rel_relkind(relid) == RELKIND_MATVIEW &&
		getExtensionOfObject(RelationRelationId, relid) == extension;
}

/* Return one of the two relations, or InvalidOid. */
static Oid
find_relation(const char *name)
{
	Oid			relid = get_relname_relid(name, get_namespace_oid(PAPPLY_NAME, true));

	return papply_stored_is_relation(relid) ? relid : InvalidOid;
}

Relation
papply_stored_open(const char *name, LOCKMODE lock_mode)
{
	Oid			relid = find_relation(name);

	/* DROP EXTENSION may have been committed while this waited for the lock */
	return OidIsValid(relid) ? try_table_open(relid, lock_mode) : NULL;
}

/* The same, but also return NULL if this would have to wait for the lock. */
static Relation
open_nowait(const char *name, LOCKMODE lock_mode)
{
	Oid			relid = find_relation(name);

	return OidIsValid(relid) && ConditionalLockRelationOid(relid, lock_mode) ?
		try_table_open(relid, NoLock) : NULL;
}

static void
close_if_open(Relation rel)
{
	if (rel != NULL)
		table_close(rel, NoLock);
}

/*** transactions ***/

static Row *
make_row(Relation rel, HeapTuple tuple)
{
	Row		   *row = palloc0(sizeof(Row));
	Datum		values[PAPPLY_STORED_COLUMNS];
	bool		nulls[PAPPLY_STORED_COLUMNS];

	row->tuple = heap_copytuple(tuple);
	heap_deform_tuple(row->tuple, RelationGetDescr(rel), values, nulls);
	row->id = DatumGetInt64(values[PAPPLY_STORED_ID - 1]);
	row->subid = DatumGetObjectId(values[PAPPLY_STORED_SUBID - 1]);
	row->remote_xid = DatumGetTransactionId(values[PAPPLY_STORED_REMOTE_XID - 1]);
	if (!nulls[PAPPLY_STORED_COMMIT_TIME - 1])
		row->commit_time = DatumGetTimestampTz(values[PAPPLY_STORED_COMMIT_TIME - 1]);
	row->finish_lsn = DatumGetLSN(values[PAPPLY_STORED_FINISH_LSN - 1]);
	return row;
}

/* Does the row only keep its number? */
static bool
is_empty(const Row *row)
{
	return !OidIsValid(row->subid);
}

/*
 * Return the rows that are committed, those that are empty too if wanted, and
 * close the relation, which may be NULL.  They are few, because a user has skipped
 * each.  The lock is kept.
 */
static List *
read_rows_of(Relation rel, bool with_empty)
{
	List	   *rows = NIL;
	SysScanDesc scan;
	HeapTuple	tuple;

	if (rel == NULL)
		return NIL;
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Row		   *row = make_row(rel, tuple);

		if (with_empty || !is_empty(row))
			rows = lappend(rows, row);
	}
	systable_endscan(scan);
	table_close(rel, NoLock);
	return rows;
}

static List *
read_all_rows(LOCKMODE lock_mode, bool with_empty)
{
	return read_rows_of(papply_stored_open(PAPPLY_STORED_TRANSACTIONS, lock_mode), with_empty);
}

static List *
read_rows(LOCKMODE lock_mode)
{
	return read_all_rows(lock_mode, false);
}

/* Return the row with this number, or NULL.  The lock is kept. */
static Row *
find_row(int64 id, LOCKMODE lock_mode)
{
	ListCell   *cell;

	foreach(cell, read_rows(lock_mode))
	{
		Row		   *row = lfirst(cell);

		if (row->id == id)
			return row;
	}
	return NULL;
}

int64
papply_stored_find(Oid subid, XLogRecPtr finish_lsn)
{
	ListCell   *cell;

	foreach(cell, read_rows(AccessShareLock))
	{
		Row		   *row = lfirst(cell);

		if (row->subid == subid && row->finish_lsn == finish_lsn)
			return row->id;
	}
	return 0;
}

Oid
papply_stored_subscription(int64 id)
{
	Row		   *row = find_row(id, AccessShareLock);

	return row != NULL ? row->subid : InvalidOid;
}

TimestampTz
papply_stored_commit_time(int64 id)
{
	Row		   *row = find_row(id, AccessShareLock);

	return row != NULL ? row->commit_time : 0;
}

/* Will the server skip the transaction when it arrives? */
static bool
is_pending(const Row *row)
{
	HeapTuple	subscription = SearchSysCache1(SUBSCRIPTIONOID, ObjectIdGetDatum(row->subid));
	bool		result;

	if (!HeapTupleIsValid(subscription))
		return false;
	result = ((Form_pg_subscription) GETSTRUCT(subscription))->subskiplsn == row->finish_lsn;
	ReleaseSysCache(subscription);
	return result;
}

static bool
has_messages(const Row *row)
{
	PapplyStoredScan *scan = papply_stored_begin_scan(row->id);
	bool		has_any;

	if (scan == NULL)
		return false;
	has_any = HeapTupleIsValid(systable_getnext_ordered(scan->scan, ForwardScanDirection));
	papply_stored_end_scan(scan);
	return has_any;
}

bool
papply_stored_lock_messages(void)
{
	Oid			relid = find_relation(PAPPLY_STORED_MESSAGES);

	return !OidIsValid(relid) || ConditionalLockRelationOid(relid, ShareLock);
}

bool
papply_stored_exist(void)
{
	ListCell   *cell;

	foreach(cell, read_rows(AccessShareLock))
	{
		if (has_messages(lfirst(cell)))
			return true;
	}
	return false;
}

bool
papply_stored_are_pending(void)
{
	ListCell   *cell;

	foreach(cell, read_rows(ShareLock))
	{
		if (is_pending(lfirst(cell)))
			return true;
	}
	return false;
}

bool
papply_stored_has_requests(Oid subid)
{
	Relation	messages = open_nowait(PAPPLY_STORED_MESSAGES, AccessShareLock);
	Relation	transactions = open_nowait(PAPPLY_STORED_TRANSACTIONS, AccessShareLock);
	bool		is_being_stored;	/* any, prepared or by an apply worker */
	ListCell   *cell;

	if (messages == NULL || transactions == NULL)
	{
		close_if_open(messages);
		close_if_open(transactions);
		return OidIsValid(find_relation(PAPPLY_STORED_MESSAGES));
	}
	is_being_stored = !ConditionalLockRelation(messages, ShareLock);
	if (!is_being_stored)
		UnlockRelation(messages, ShareLock);
	table_close(messages, NoLock);
	foreach(cell, read_rows_of(transactions, false))
	{
		Row		   *row = lfirst(cell);

		if (row->subid == subid &&
			(is_pending(row) || (is_being_stored && !has_messages(row))))
			return true;
	}
	return false;
}

int64
papply_stored_next_id_after(Oid subid, int64 id)
{
	int64		next = 0;
	ListCell   *cell;

	foreach(cell, read_rows(AccessShareLock))
	{
		Row		   *row = lfirst(cell);

		if (row->subid == subid && row->id > id && (next == 0 || row->id < next) &&
			has_messages(row))
			next = row->id;
	}
	return next;
}

/*** changes of rows ***/

static int64
greatest_id(void)
{
	int64		greatest = 0;
	ListCell   *cell;

	foreach(cell, read_all_rows(AccessShareLock, true))
		greatest = Max(greatest, ((Row *) lfirst(cell))->id);
	return greatest;
}

int64
papply_stored_next_id(void)
{
	int64		id = greatest_id() + 1;
	ListCell   *cell;

	/* the row of this number makes empty ones superfluous */
	foreach(cell, read_all_rows(RowExclusiveLock, true))
	{
		Row		   *row = lfirst(cell);
		Relation	rel = table_open(row->tuple->t_tableOid, NoLock);

		if (is_empty(row))
			CatalogTupleDelete(rel, &row->tuple->t_self);
		table_close(rel, NoLock);
	}
	return id;
}

/* Make the row empty. */
static void
clear_row(Relation rel, Row *row)
{
	Datum		values[PAPPLY_STORED_COLUMNS] = {0};
	bool		nulls[PAPPLY_STORED_COLUMNS];

	memset(nulls, true, sizeof(nulls));
	values[PAPPLY_STORED_ID - 1] = Int64GetDatum(row->id);
	nulls[PAPPLY_STORED_ID - 1] = false;
	values[PAPPLY_STORED_SUBID - 1] = ObjectIdGetDatum(InvalidOid);
	nulls[PAPPLY_STORED_SUBID - 1] = false;
	CatalogTupleUpdate(rel, &row->tuple->t_self,
					   heap_form_tuple(RelationGetDescr(rel), values, nulls));
}

static void
remove_row(Row *row)
{
	Relation	rel = table_open(row->tuple->t_tableOid, RowExclusiveLock);

	if (row->id < greatest_id())
		CatalogTupleDelete(rel, &row->tuple->t_self);
	else
		clear_row(rel, row);
	table_close(rel, NoLock);
}

/* Returns the number of messages. */
static uint64
remove_messages(int64 id)
{
	PapplyStoredScan *scan = papply_stored_begin_scan(id);
	HeapTuple	tuple;
	uint64		removed = 0;

	if (scan == NULL)
		return 0;
	LockRelationOid(RelationGetRelid(scan->messages), RowExclusiveLock);
	while (HeapTupleIsValid(tuple = systable_getnext_ordered(scan->scan, ForwardScanDirection)))
	{
		CHECK_FOR_INTERRUPTS();
		CatalogTupleDelete(scan->messages, &tuple->t_self);
		removed++;
	}
	papply_stored_end_scan(scan);
	return removed;
}

/* Returns the number of messages. */
static uint64
remove_with_messages(Row *row)
{
	remove_row(row);
	return remove_messages(row->id);
}

/* Return the least number above this one that messages have, or 0. */
static int64
next_id_of_messages(int64 id)
{
	PapplyStoredScan *scan = begin_scan(id, BTGreaterStrategyNumber, F_INT8GT);
	HeapTuple	tuple = systable_getnext_ordered(scan->scan, ForwardScanDirection);
	int64		next = 0;
	bool		is_null;

	if (HeapTupleIsValid(tuple))
		next = DatumGetInt64(heap_getattr(tuple, MESSAGE_ID, RelationGetDescr(scan->messages),
										  &is_null));
	papply_stored_end_scan(scan);
	return next;
}

/*
 * Remove messages without a row: a subscription was dropped while its transaction was
 * prepared.
 */
static void
remove_orphans(void)
{
	int64		id = 0;

	while ((id = next_id_of_messages(id)) != 0)
		if (find_row(id, AccessShareLock) == NULL)
			(void) remove_messages(id);
}

void
papply_stored_remove_unused(void)
{
	Relation	messages = papply_stored_open(PAPPLY_STORED_MESSAGES, AccessShareLock);
	ListCell   *cell;

	/* no transaction may begin to store any meanwhile */
	if (ConditionalLockRelation(messages, ShareLock))
	{
		/*
		 * The messages are read after the skip LSN: the transaction that
		 * clears it stores them.
		 */
		foreach(cell, read_rows(RowExclusiveLock))
		{
			Row		   *row = lfirst(cell);

			if (!is_pending(row) && !has_messages(row))
				remove_row(row);
		}
		remove_orphans();
		UnlockRelation(messages, ShareLock);
	}
	table_close(messages, NoLock);
}

bool
papply_stored_is_requested(int64 id, Oid subid)
{
	Relation	messages = papply_stored_open(PAPPLY_STORED_MESSAGES, RowExclusiveLock);
	Relation	transactions = papply_stored_open(PAPPLY_STORED_TRANSACTIONS, AccessShareLock);
	Row		   *row;

	close_if_open(messages);
	if (messages == NULL || transactions == NULL)
		return false;
	/* a session may be removing the row: papply_stored_remove_unused() */
	LockRelation(transactions, RowExclusiveLock);
	UnlockRelation(transactions, RowExclusiveLock);
	table_close(transactions, NoLock);
	row = find_row(id, AccessShareLock);
	return row != NULL && row->subid == subid;
}

uint64
papply_stored_remove(int64 id)
{
	Row		   *row = find_row(id, RowExclusiveLock);

	return row != NULL ? remove_with_messages(row) : 0;
}

int
papply_stored_remove_all(Oid subid)
{
	int			removed = 0;
	ListCell   *cell;

	foreach(cell, read_rows(RowExclusiveLock))
	{
		Row		   *row = lfirst(cell);

		if (row->subid == subid && remove_with_messages(row) > 0)
			removed++;
	}
	return removed;
}

static void
set_commit_time(Row *row, TimestampTz commit_time)
{
	Relation	rel = table_open(row->tuple->t_tableOid, RowExclusiveLock);
	int			column = PAPPLY_STORED_COMMIT_TIME;
	Datum		value = TimestampTzGetDatum(commit_time);
	bool		is_null = false;

	CatalogTupleUpdate(rel, &row->tuple->t_self,
					   heap_modify_tuple_by_cols(row->tuple, RelationGetDescr(rel), 1,
												 &column, &value, &is_null));
	table_close(rel, NoLock);
}

void
papply_stored_end_prepared(Oid subid, TransactionId remote_xid, XLogRecPtr end_lsn,
						   TimestampTz commit_time)
{
	Relation	messages = open_nowait(PAPPLY_STORED_MESSAGES, AccessShareLock);
	ListCell   *cell;

	foreach(cell, read_rows_of(open_nowait(PAPPLY_STORED_TRANSACTIONS, RowExclusiveLock), false))
	{
		Row		   *row = lfirst(cell);

		/* the prepared transaction has stored messages, not visible yet */
		if (row->subid != subid || row->remote_xid != remote_xid ||
			row->finish_lsn >= end_lsn || (messages != NULL && has_messages(row)))
			continue;
		if (commit_time == 0)
			remove_row(row);
		else
			set_commit_time(row, commit_time);
		break;
	}
	close_if_open(messages);
}

/*** messages ***/

static PapplyStoredScan *
begin_scan(int64 id, StrategyNumber strategy, RegProcedure procedure)
{
	Relation	messages = papply_stored_open(PAPPLY_STORED_MESSAGES, AccessShareLock);
	PapplyStoredScan *scan;
	ScanKeyData key;

	if (messages == NULL)
		return NULL;
	scan = palloc(sizeof(PapplyStoredScan));
	scan->messages = messages;
	scan->index = index_open(linitial_oid(RelationGetIndexList(messages)), AccessShareLock);
	scan->context = AllocSetContextCreate(CurrentMemoryContext, PAPPLY_NAME " stored message",
										  ALLOCSET_DEFAULT_SIZES);
	ScanKeyInit(&key, MESSAGE_ID, strategy, procedure, Int64GetDatum(id));
	scan->scan = systable_beginscan_ordered(messages, scan->index, NULL, 1, &key);
	return scan;
}

PapplyStoredScan *
papply_stored_begin_scan(int64 id)
{
	return begin_scan(id, BTEqualStrategyNumber, F_INT8EQ);
}

static char *
read_message(PapplyStoredScan *scan, ScanDirection direction, int *length)
{
	HeapTuple	tuple = systable_getnext_ordered(scan->scan, direction);
	MemoryContext old_context;
	bytea	   *data;
	bool		is_null;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(scan->context);
	old_context = MemoryContextSwitchTo(scan->context);
	data = DatumGetByteaPCopy(heap_getattr(tuple, MESSAGE_DATA,
										   RelationGetDescr(scan->messages), &is_null));
	MemoryContextSwitchTo(old_context);
	*length = VARSIZE_ANY_EXHDR(data);
	return VARDATA_ANY(data);
}

char *
papply_stored_next(PapplyStoredScan *scan, int *length)
{
	return read_message(scan, ForwardScanDirection, length);
}

char *
papply_stored_last(PapplyStoredScan *scan, int *length)
{
	return read_message(scan, BackwardScanDirection, length);
}

void
papply_stored_end_scan(PapplyStoredScan *scan)
{
	systable_endscan_ordered(scan->scan);
	index_close(scan->index, NoLock);
	table_close(scan->messages, NoLock);
	MemoryContextDelete(scan->context);
	pfree(scan);
}

void
papply_stored_insert(int64 id, char *(*next_message) (int *length))
{
	Relation	messages = papply_stored_open(PAPPLY_STORED_MESSAGES, RowExclusiveLock);
	CatalogIndexState indexes = CatalogOpenIndexes(messages);
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  PAPPLY_NAME " stored message",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	Datum		values[MESSAGE_COLUMNS];
	bool		nulls[MESSAGE_COLUMNS] = {false};
	int32		number = 0;
	int			length;
	char	   *message;

	while ((message = next_message(&length)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		values[MESSAGE_ID - 1] = Int64GetDatum(id);
		values[MESSAGE_NUMBER - 1] = Int32GetDatum(++number);
		values[MESSAGE_DATA - 1] = PointerGetDatum(cstring_to_text_with_len(message, length));
		CatalogTupleInsertWithInfo(messages,
								   heap_form_tuple(RelationGetDescr(messages), values, nulls),
								   indexes);
		MemoryContextReset(context);
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
	CatalogCloseIndexes(indexes);
	table_close(messages, NoLock);
}

void
papply_stored_refuse_missing(int64 id)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("skipped transaction %lld does not exist", (long long) id),
			 errhint("Skipped transactions are shown by %s.",
					 PAPPLY_NAME ".skipped_transactions")));
}
