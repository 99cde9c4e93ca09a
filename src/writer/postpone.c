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
 *	 none; but for partitions, whose rows may also come by the name of the root.
 * - A change that has a key in common with one of an older transaction depends on that
 *	 one, or on a younger one: the greatest number is its dependency (dispatch.c).
 * - Of two changes of one transaction nothing is known; in the same table they keep
 *	 their order.
 * - A unique key that the receiver does not know, since the publisher has not sent the
 *	 value that is replaced, ends in an error, as it would between two writers, and the
 *	 transactions are tried again in their order; so does one that only the subscriber
 *	 has.
 * - A row that is not found is looked for again when all before it is applied.
 * - Keys that are different bytes on the publisher may be equal here (a type that is
 *	 another one, say).  Then a change that was postponed finds its row changed by the range
 *	 since then, or finds none, which ends in an error as well.
 * Code could tell: what is postponed or passes is in tables without triggers, and without
 * constraints or defaults that may read tables.  An INSERT is never postponed, nor what may
 * move a row to another partition: a place in the table is taken in order.  And nothing is
 * where the subscriber's WAL is decoded (reorder.c).
 */
#include "parallel_apply.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "miscadmin.h"

#include "commit_order.h"
#include "insert_run.h"
#include "message.h"
#include "postpone.h"
#include "reorder.h"
#include "target.h"

/* More of them would be slow to compare, and mean that all is waiting. */
#define MAX_POSTPONED 64

typedef struct Postponed
{
	PapplyEntry *entry;			/* stays in the queue until it is committed */
	uint64		seqno;			/* of its transaction */
	Oid			local_relid;
	CommandId	command_id;		/* of the next change */
	bool		is_passed;		/* by one of its table */
} Postponed;

static Postponed postponed[MAX_POSTPONED];
static int	npostponed = 0;

/* Commits that they all wait for, before those of the range. */
static uint64 awaited = PAPPLY_NO_SEQNO;

/* Of the range. */
static uint64 range_first;
static void (*apply_change) (PapplyEntry *entry, uint64 seqno);

/* The one that is being applied, and the command that the first of them is. */
static Postponed *applied = NULL;
static CommandId applied_since;

void
papply_postpone_begin_range(uint64 first, void (*apply) (PapplyEntry *entry, uint64 seqno))
{
	papply_reorder_begin_range();
	range_first = first;
	apply_change = apply;
	npostponed = 0;
	awaited = PAPPLY_NO_SEQNO;
	applied = NULL;
}

static LogicalRepRelId
remote_relid_of(PapplyEntry *entry)
{
	return papply_message_get_uint32(PapplyEntryData(entry) + 1);
}

/* Might it have a key in common with one that is postponed? */
static bool
follows_postponed(PapplyEntry *entry, uint64 seqno, const PapplyTarget *table)
{
	for (int i = 0; i < npostponed; i++)
		if (postponed[i].local_relid == table->local_relid &&
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

static void
pass_postponed(const PapplyTarget *table)
{
	for (int i = 0; i < npostponed; i++)
		postponed[i].is_passed |= postponed[i].local_relid == table->local_relid;
}

/* Its bytes stay only once all of its transaction is there; see writer.c. */
static bool
may_be_postponed(PapplyEntry *entry, uint64 seqno, const PapplyTarget *table)
{
	uint32		flags = pg_atomic_read_u32(&papply_queue_transaction(seqno)->flags);

	return table != NULL && !table->is_partitioned && !table->is_partition &&
		npostponed < MAX_POSTPONED && (flags & PAPPLY_TXN_COMPLETE) &&
		PapplyEntryData(entry)[0] != LOGICAL_REP_MSG_INSERT &&
		papply_reorder_is_allowed();
}

static CommandId
next_command_id(void)
{
	return IsTransactionState() ? GetCurrentCommandId(false) : FirstCommandId;
}

static void
postpone(PapplyEntry *entry, uint64 seqno, const PapplyTarget *table)
{
	Postponed  *change = &postponed[npostponed++];

	papply_insert_run_flush();	/* what is put off has not passed it */
	change->entry = entry;
	change->seqno = seqno;
	change->local_relid = table->local_relid;
	change->command_id = next_command_id();
	change->is_passed = false;
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
	if (!must_wait(entry) && !follows_postponed(entry, seqno, table))
	{
		pass_postponed(table);
		return false;
	}
	if (may_be_postponed(entry, seqno, table))
	{
		postpone(entry, seqno, table);
		return true;
	}
	papply_postpone_apply_all();
	return false;
}

void
papply_postpone_apply_all(void)
{
	if (npostponed == 0 || applied != NULL)
		return;
	papply_insert_run_flush();
	applied_since = next_command_id();
	for (applied = postponed; applied < postponed + npostponed; applied++)
	{
		CHECK_FOR_INTERRUPTS();
		apply_change(applied->entry, applied->seqno);
	}
	applied = NULL;
	npostponed = 0;
	awaited = PAPPLY_NO_SEQNO;
}

/* Then the range is rolled back, and its transactions are applied in their order. */
static void
refuse_order(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg_internal("a row has changed before its turn")));
}

void
papply_postpone_check_row(TupleTableSlot *slot)
{
	bool		isnull;
	Datum		xmin;
	CommandId	cmin;

	if (applied == NULL)
		return;
	xmin = slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull);
	if (!TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
		return;
	cmin = DatumGetCommandId(slot_getsysattr(slot, MinCommandIdAttributeNumber, &isnull));
	if (cmin >= applied->command_id && cmin < applied_since)
		refuse_order();
}

void
papply_postpone_check_missing(void)
{
	if (applied != NULL && applied->is_passed)
		refuse_order();
}
