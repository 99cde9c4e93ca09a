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

#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "prepared.h"

/* 512 kB; a transaction with more keys counts as one that touches any key. */
#define MAX_KEYS 65536

/*
 * 8 MB, for all prepared transactions; those that do not fit touch any key as
 * well.
 */
#define MAX_ALL_KEYS (16 * MAX_KEYS)

typedef struct Prepared
{
	TransactionId remote_xid;
	int			count;
	int			capacity;
	uint64	   *hashes;			/* NULL if it touches any key */
} Prepared;

typedef struct PreparedTransactions
{
	List	   *kept;
	Prepared   *current;		/* being received */
	MemoryContext context;
	int			capacity;		/* of those that are kept, and of current */
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
	prepared.kept = NIL;
	prepared.current = NULL;
	prepared.capacity = 0;
}

static void
forget_keys(Prepared *item)
{
	if (item->hashes == NULL)
		return;
	pfree(item->hashes);
	item->hashes = NULL;
	prepared.capacity -= item->capacity;
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
	Prepared   *current;

	papply_prepared_forget();
	current = MemoryContextAllocZero(prepared.context, sizeof(Prepared));
	current->capacity = 16;
	current->hashes = MemoryContextAlloc(prepared.context, current->capacity * sizeof(uint64));
	prepared.current = current;
	prepared.capacity += current->capacity;
}

/* Make room for count more keys.  Return false if that would be too many. */
static bool
make_room(int count)
{
	Prepared   *current = prepared.current;
	int			capacity = current->capacity;

	while (current->count + count > capacity)
		capacity *= 2;
	if (capacity == current->capacity)
		return true;
	if (capacity > MAX_KEYS || prepared.capacity + capacity - current->capacity > MAX_ALL_KEYS)
		return false;
	current->hashes = repalloc(current->hashes, capacity * sizeof(uint64));
	prepared.capacity += capacity - current->capacity;
	current->capacity = capacity;
	return true;
}

void
papply_prepared_add(const PapplyHashes *hashes)
{
	Prepared   *current = prepared.current;

	if (current == NULL || current->hashes == NULL)
		return;
	if (hashes->is_incomplete || !make_room(hashes->count))
	{
		papply_prepared_add_all();
		return;
	}
	memcpy(current->hashes + current->count, hashes->hashes, hashes->count * sizeof(uint64));
	current->count += hashes->count;
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
	prepared.kept = lappend(prepared.kept, prepared.current);
	prepared.current = NULL;
	MemoryContextSwitchTo(old_context);
}

void
papply_prepared_finish(TransactionId remote_xid, PapplyDependency *dependencies, uint64 seqno)
{
	ListCell   *lc;

	foreach(lc, prepared.kept)
	{
		Prepared   *item = lfirst(lc);

		if (item->remote_xid != remote_xid)
			continue;
		if (item->hashes == NULL)
			papply_dependency_record_all(dependencies, seqno);
		else
			for (int i = 0; i < item->count; i++)
				papply_dependency_record(dependencies, item->hashes[i], seqno);
		prepared.kept = foreach_delete_current(prepared.kept, lc);
		forget_item(item);
		return;
	}
	papply_dependency_record_all(dependencies, seqno);
}
