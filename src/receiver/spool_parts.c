/*-------------------------------------------------------------------------
 * spool_parts.c
 *	  Track where subtransactions begin in a spool, and what is not read.
 *
 * Runs in the receiver.
 *
 * When a subtransaction is rolled back, everything written since its first
 * change belongs to it or to its own subtransactions, because changes outside
 * of it come only after its end.  PostgreSQL's own apply relies on that too.
 * So subtransactions that began later are forgotten as well: if the publisher
 * reports their rollback afterwards, there is nothing left of them.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/memutils.h"

#include "spool_parts.h"

typedef struct Subtransaction
{
	TransactionId xid;
	uint64		position;
	TransactionId previous;		/* the one that began before */
} Subtransaction;

typedef struct Gap
{
	uint64		begin;
	uint64		end;
} Gap;

void
papply_spool_parts_note(PapplySpoolParts *parts, TransactionId xid, uint64 position)
{
	Subtransaction *subxact;
	bool		found;

	if (xid == parts->last_xid)
		return;
	parts->last_xid = xid;
	if (parts->subxacts == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = sizeof(TransactionId);
		ctl.entrysize = sizeof(Subtransaction);
		ctl.hcxt = TopMemoryContext;
		parts->subxacts = hash_create("parallel_apply streamed subtransactions", 16,
									  &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	subxact = hash_search(parts->subxacts, &xid, HASH_ENTER, &found);
	if (found)
		return;
	subxact->position = position;
	subxact->previous = parts->newest_xid;
	parts->newest_xid = xid;
}

void
papply_spool_parts_drop_tail(PapplySpoolParts *parts)
{
	Gap		   *gap = llast(parts->gaps);

	parts->gaps = list_delete_last(parts->gaps);
	pfree(gap);
}

/* Add a gap; gaps that touch are merged. */
static void
add_gap(PapplySpoolParts *parts, uint64 begin, uint64 end)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	Gap		   *gap = palloc(sizeof(Gap));

	Assert(begin < end);
	while (parts->gaps != NIL && ((Gap *) llast(parts->gaps))->end >= begin)
	{
		begin = Min(begin, ((Gap *) llast(parts->gaps))->begin);
		papply_spool_parts_drop_tail(parts);
	}
	gap->begin = begin;
	gap->end = end;
	parts->gaps = lappend(parts->gaps, gap);
	MemoryContextSwitchTo(old_context);
}

/* Forget the newest subtransaction. */
static void
forget_newest(PapplySpoolParts *parts)
{
	TransactionId xid = parts->newest_xid;
	Subtransaction *subxact = hash_search(parts->subxacts, &xid, HASH_FIND, NULL);

	parts->newest_xid = subxact->previous;
	(void) hash_search(parts->subxacts, &xid, HASH_REMOVE, NULL);
}

bool
papply_spool_parts_cut(PapplySpoolParts *parts, TransactionId xid, uint64 end)
{
	Subtransaction *subxact = NULL;
	uint64		position;
	TransactionId previous;

	if (parts->subxacts != NULL)
		subxact = hash_search(parts->subxacts, &xid, HASH_FIND, NULL);
	if (subxact == NULL)
		return false;
	position = subxact->position;
	previous = subxact->previous;
	while (parts->newest_xid != previous)
		forget_newest(parts);
	parts->last_xid = InvalidTransactionId;
	add_gap(parts, position, end);
	return true;
}

uint64
papply_spool_parts_tail(const PapplySpoolParts *parts, uint64 end)
{
	const Gap  *gap = parts->gaps == NIL ? NULL : llast(parts->gaps);

	return gap == NULL || gap->end < end ? end : gap->begin;
}

uint64
papply_spool_parts_pass(const PapplySpoolParts *parts, int *gap, uint64 position)
{
	const Gap  *next;

	if (*gap >= list_length(parts->gaps))
		return position;
	next = list_nth(parts->gaps, *gap);
	Assert(next->begin >= position);
	if (next->begin != position)
		return position;
	(*gap)++;
	return next->end;
}

void
papply_spool_parts_free(PapplySpoolParts *parts)
{
	if (parts->subxacts != NULL)
		hash_destroy(parts->subxacts);
	list_free_deep(parts->gaps);
}
