/*-------------------------------------------------------------------------
 * prepared.c
 *	  Keep the keys of prepared transactions until they are finished.
 *
 * Runs in the receiver.
 *
 * The changes of a prepared transaction become visible, and its rows are
 * unlocked, when its COMMIT PREPARED has been applied, which is a transaction
 * of its own in the commit order.  So COMMIT PREPARED is the last writer of
 * the keys, and a transaction that needs one of the rows depends on it.  If
 * the keys are not known, everything depends on it: the transaction was
 * prepared before the pool started, or it or all prepared transactions have
 * too many keys.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "prepared.h"

/* A transaction with more keys counts as one that touches any key. */
#define MAX_BYTES (512 * 1024)

/* For all prepared transactions; those that do not fit touch any key as well. */
#define MAX_ALL_BYTES (16 * MAX_BYTES)

typedef struct Prepared
{
	TransactionId remote_xid;
	StringInfoData hashes;		/* each a uint64; no data if it touches any
								 * key */
} Prepared;

typedef struct PreparedTransactions
{
	List	   *unfinished;
	Prepared   *current;		/* being received */
	MemoryContext context;
	int			bytes;			/* of the hashes of these transactions */
} PreparedTransactions;

static PreparedTransactions prepared;

void
papply_prepared_reset(void)
{
	if (prepared.context == NULL)
		prepared.context = AllocSetContextCreate(TopMemoryContext,
												 "parallel_apply prepared transactions",
												 ALLOCSET_SMALL_SIZES);
	MemoryContextReset(prepared.context);
	prepared.unfinished = NIL;
	prepared.current = NULL;
	prepared.bytes = 0;
}

static void
forget_keys(Prepared *item)
{
	if (item->hashes.data == NULL)
		return;
	pfree(item->hashes.data);
	item->hashes.data = NULL;
	Assert(prepared.bytes >= item->hashes.len);
	prepared.bytes -= item->hashes.len;
}

static void
forget_item(Prepared *item)
{
	forget_keys(item);
	pfree(item);
}

void
papply_prepared_forget(void)
{
	if (prepared.current != NULL)
		forget_item(prepared.current);
	prepared.current = NULL;
}

void
papply_prepared_begin(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(prepared.context);

	papply_prepared_forget();
	prepared.current = palloc(sizeof(Prepared));
	initStringInfo(&prepared.current->hashes);
	MemoryContextSwitchTo(old_context);
}

void
papply_prepared_add(const PapplyHashes *hashes)
{
	Prepared   *current = prepared.current;
	int			bytes = hashes->count * sizeof(uint64);

	if (current == NULL || current->hashes.data == NULL)
		return;
	if (hashes->is_incomplete || current->hashes.len + bytes > MAX_BYTES ||
		prepared.bytes + bytes > MAX_ALL_BYTES)
	{
		papply_prepared_add_all();
		return;
	}
	appendBinaryStringInfo(&current->hashes, (const char *) hashes->hashes, bytes);
	prepared.bytes += bytes;
}

void
papply_prepared_add_all(void)
{
	if (prepared.current != NULL)
		forget_keys(prepared.current);
}

void
papply_prepared_end(TransactionId remote_xid)
{
	MemoryContext old_context;

	if (prepared.current == NULL)
		return;
	old_context = MemoryContextSwitchTo(prepared.context);
	prepared.current->remote_xid = remote_xid;
	prepared.unfinished = lappend(prepared.unfinished, prepared.current);
	prepared.current = NULL;
	MemoryContextSwitchTo(old_context);
}

void
papply_prepared_finish(TransactionId remote_xid, PapplyDependency *dependencies, uint64 seqno)
{
	ListCell   *lc;

	foreach(lc, prepared.unfinished)
	{
		Prepared   *item = lfirst(lc);
		const uint64 *hashes = (const uint64 *) item->hashes.data;

		if (item->remote_xid != remote_xid)
			continue;
		if (hashes == NULL)
			papply_dependency_record_all(dependencies, seqno);
		else
			for (size_t i = 0; i < item->hashes.len / sizeof(uint64); i++)
				papply_dependency_record(dependencies, hashes[i], seqno);
		prepared.unfinished = foreach_delete_current(prepared.unfinished, lc);
		forget_item(item);
		return;
	}
	papply_dependency_record_all(dependencies, seqno);
}
