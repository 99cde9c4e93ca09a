/*-------------------------------------------------------------------------
 * postpone.c
 *	  Changes that are left for later, as what they depend on is not committed.
 *
 * Runs in a writer.
 *
 * A batch of small transactions often has a change or two of rows that the batch before
 * it has changed: the balances of a few branches, a counter.  A writer that waits for it
 * at the first one does nothing until then, and two writers do no more than one.  So the
 * change is postponed, and those behind it are applied, until the other batch is
 * committed, or nothing else is left.
 *
 * Same result: the range is one local transaction, so nobody sees it half done, and what
 * is applied in it before its turn must be no matter anyway.  The order of two changes
 * matters if they have a key in common, and then the later one does not pass:
 * - The receiver knows keys as those of a table, so changes of different tables have
 *	 none.
 * - A change that has a key in common with one of an older transaction depends on that
 *	 one, or on a younger one: the greatest number is its dependency (dispatch.c).
 * - Of two changes of one transaction nothing is known; in the same table they keep
 *	 their order.
 * - A unique key that the receiver does not know, since the publisher has not sent the
 *	 value that is replaced, ends in an error, as it would between two writers, and the
 *	 transactions are tried again in their order; so does one that only the subscriber
 *	 has.
 * - A row that is not found is looked for again when all before it is applied.
 * Code could tell: what is postponed or passes is in tables without triggers, and without
 * constraints or defaults that may read tables.  And who decodes the subscriber's WAL may
 * number the rows that are inserted: an INSERT is never postponed, nor what may move a row
 * to another partition.
 */
#include "parallel_apply.h"

#include "miscadmin.h"

#include "commit_order.h"
#include "message.h"
#include "postpone.h"
#include "target.h"

/* More of them would be slow to compare, and mean that all is waiting. */
#define MAX_POSTPONED 64

typedef struct Postponed
{
	PapplyEntry *entry;			/* stays in the queue until it is committed */
	uint64		seqno;			/* of its transaction */
	LogicalRepRelId remote_relid;
} Postponed;

static Postponed postponed[MAX_POSTPONED];
static int	npostponed = 0;

/* Commits that they all wait for, before those of the range. */
static uint64 awaited = PAPPLY_NO_SEQNO;

/* Of the range. */
static uint64 range_first;
static void (*apply_change) (PapplyEntry *entry, uint64 seqno);

static bool is_applying = false;

void
papply_postpone_begin_range(uint64 first, void (*apply) (PapplyEntry *entry, uint64 seqno))
{
	range_first = first;
	apply_change = apply;
	npostponed = 0;
	awaited = PAPPLY_NO_SEQNO;
	is_applying = false;
}

static LogicalRepRelId
remote_relid_of(PapplyEntry *entry)
{
	return papply_message_get_uint32(PapplyEntryData(entry) + 1);
}

/* Might it have a key in common with one that is postponed? */
static bool
follows_postponed(PapplyEntry *entry, uint64 seqno)
{
	for (int i = 0; i < npostponed; i++)
		if (postponed[i].remote_relid == remote_relid_of(entry) &&
			(postponed[i].seqno == seqno || postponed[i].seqno <= entry->dependency))
			return true;
	return false;
}

static bool
must_wait(PapplyEntry *entry)
{
	return entry->dependency < range_first &&
		entry->dependency > papply_commit_order_committed();
}

/* Its bytes stay only once all of its transaction is there; see writer.c. */
static bool
may_be_postponed(PapplyEntry *entry, uint64 seqno)
{
	uint32		flags = pg_atomic_read_u32(&papply_queue_transaction(seqno)->flags);

	return npostponed < MAX_POSTPONED && (flags & PAPPLY_TXN_COMPLETE) &&
		PapplyEntryData(entry)[0] != LOGICAL_REP_MSG_INSERT;
}

static void
postpone(PapplyEntry *entry, uint64 seqno)
{
	Postponed  *change = &postponed[npostponed++];

	change->entry = entry;
	change->seqno = seqno;
	change->remote_relid = remote_relid_of(entry);
	if (entry->dependency < range_first)
		awaited = Max(awaited, entry->dependency);
}

bool
papply_postpone_change(PapplyEntry *entry, uint64 seqno)
{
	const PapplyTarget *table;

	if (npostponed == 0 && !must_wait(entry))
		return false;
	table = papply_target_plain(remote_relid_of(entry), entry->relation_version);
	if (table == NULL || papply_commit_order_committed() >= awaited)
		papply_postpone_apply_all();
	if (!must_wait(entry) && !follows_postponed(entry, seqno))
		return false;
	if (table != NULL && !table->is_partitioned && may_be_postponed(entry, seqno))
	{
		postpone(entry, seqno);
		return true;
	}
	papply_postpone_apply_all();
	return false;
}

void
papply_postpone_apply_all(void)
{
	if (npostponed == 0 || is_applying)
		return;
	is_applying = true;
	for (int i = 0; i < npostponed; i++)
	{
		CHECK_FOR_INTERRUPTS();
		apply_change(postponed[i].entry, postponed[i].seqno);
	}
	is_applying = false;
	npostponed = 0;
	awaited = PAPPLY_NO_SEQNO;
}
