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
	bool		has_all;
	int			count;
	int			capacity;
	uint64	   *hashes;			/* NULL if it touches any key */
} Prepared;

static List *prepared = NIL;
static Prepared *current = NULL;	/* being received */
static MemoryContext context = NULL;
static int	all_capacity = 0;	/* of those that are kept, and of current */

void
papply_prepared_reset(void)
{
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext,
										"parallel_apply prepared transactions",
										ALLOCSET_SMALL_SIZES);
	MemoryContextReset(context);
	prepared = NIL;
	current = NULL;
	all_capacity = 0;
}

static void
forget_keys(Prepared *item)
{
	if (item->hashes == NULL)
		return;
	pfree(item->hashes);
	item->hashes = NULL;
	all_capacity -= item->capacity;
}

static void
forget(Prepared *item)
{
	forget_keys(item);
	pfree(item);
}

void
papply_prepared_forget(void)
{
	if (current != NULL)
		forget(current);
	current = NULL;
}

void
papply_prepared_begin(void)
{
	papply_prepared_forget();
	current = MemoryContextAllocZero(context, sizeof(Prepared));
	current->capacity = 16;
	current->hashes = MemoryContextAlloc(context, current->capacity * sizeof(uint64));
	all_capacity += current->capacity;
}

/* Make room for count more keys.  Return false if that would be too many. */
static bool
make_room(int count)
{
	int			capacity = current->capacity;

	while (current->count + count > capacity)
		capacity *= 2;
	if (capacity == current->capacity)
		return true;
	if (capacity > MAX_KEYS || all_capacity + capacity - current->capacity > MAX_ALL_KEYS)
		return false;
	current->hashes = repalloc(current->hashes, capacity * sizeof(uint64));
	all_capacity += capacity - current->capacity;
	current->capacity = capacity;
	return true;
}

void
papply_prepared_add(const PapplyHashes *hashes)
{
	if (current == NULL || current->has_all)
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
	if (current == NULL)
		return;
	current->has_all = true;
	forget_keys(current);
}

void
papply_prepared_end(TransactionId remote_xid)
{
	MemoryContext old_context;

	if (current == NULL)
		return;
	old_context = MemoryContextSwitchTo(context);
	current->remote_xid = remote_xid;
	prepared = lappend(prepared, current);
	current = NULL;
	MemoryContextSwitchTo(old_context);
}

void
papply_prepared_finish(TransactionId remote_xid, PapplyDependency *dependencies, uint64 seqno)
{
	ListCell   *lc;

	foreach(lc, prepared)
	{
		Prepared   *item = lfirst(lc);

		if (item->remote_xid != remote_xid)
			continue;
		if (item->has_all)
			papply_dependency_record_all(dependencies, seqno);
		for (int i = 0; i < item->count && !item->has_all; i++)
			papply_dependency_record(dependencies, item->hashes[i], seqno);
		prepared = foreach_delete_current(prepared, lc);
		forget(item);
		return;
	}
	papply_dependency_record_all(dependencies, seqno);
}
