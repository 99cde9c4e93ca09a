/*-------------------------------------------------------------------------
 * postpone.c
 *	  Changes that are postponed because their dependency is not committed yet.
 *
 * Runs in a writer.
 *
 * A batch of small transactions often has a few changes of rows that the
 * previous batch has changed, such as the balances of a few branches, or a
 * counter.  If a writer waited at the first of these changes, it would be idle
 * until then, and two writers would do no more than one.  So the change is
 * postponed, and the following ones are applied, until the other batch is
 * committed or nothing else is left.
 *
 * The result is the same.  The range is one local transaction, so no other
 * transaction sees it half done, and what it applies before its turn must be
 * independent of the order anyway.  The order of two changes matters only if
 * they have a key in common, and then the later one does not pass the earlier
 * one:
 * - The receiver hashes keys together with their table, so changes of
 *   different tables have none in common.  Partitions are an exception,
 *   because their rows may also be sent under the name of the root.
 * - A change that has a key in common with one of an older transaction depends
 *   on that transaction, or on a younger one, because its dependency is the
 *   greatest sequence number (dispatch.c).
 * - Nothing is known about two changes of one transaction.  In the same table
 *   they keep their order.
 * - The receiver does not know a unique key if the publisher does not send the
 *   value that is replaced, or if only the subscriber has it.  If an INSERT
 *   comes before the change that frees its value, that ends in an error, and
 *   the transactions are tried again in their order.  The writer learns from
 *   that (in_order.c).  The opposite would hide an error that PostgreSQL's own
 *   apply reports: a change must not free a value before a postponed one needs
 *   it.  So only INSERTs pass a postponed change of a table that has another
 *   unique or exclusion constraint than the replica identity, and nothing that
 *   frees a key passes one that gives its row another key.
 * - A row that is not found is searched for again when all changes before it
 *   have been applied.
 * - Keys that are different bytes on the publisher may be equal here, for
 *   example if the type of a column differs.  Then a postponed change finds
 *   that the range has changed its row since then, or finds no row.  Either
 *   ends in an error as well.  It could not find that the value of its new key was
 *   freed, hence the rule above.
 *
 * User code could observe the reordering, so only tables without it take part.  An INSERT
 * is never postponed, nor is a change that may move a row to another
 * partition, because rows must take their places in the table in order.
 * Nothing is postponed if the subscriber's WAL is decoded (reorder.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/sysattr.h"
#include "access/xact.h"
#include "miscadmin.h"

#include "insert_run.h"
#include "message.h"
#include "pool.h"
#include "postpone.h"
#include "queue.h"
#include "reorder.h"
#include "target.h"

/* More would be slow to compare, and would mean that everything is waiting. */
#define MAX_POSTPONED 64

typedef struct Postponed
{
	PapplyEntry *entry;			/* stays in the queue until it is committed */
	uint64		seqno;			/* of its transaction */
	Oid			local_relid;
	CommandId	command_id;		/* of the next command when it was postponed */
	bool		takes_key;		/* changes_key() */
	bool		is_passed;		/* by a later change of the same table */
} Postponed;

static Postponed postponed[MAX_POSTPONED];

/* The range of transactions that is being applied. */
typedef struct PostponeRange
{
	uint64		first;
	void		(*apply_change) (PapplyEntry *entry, uint64 seqno);
	int			count;			/* of postponed changes */
	uint64		awaited;		/* the greatest dependency of these that is
								 * older than the range */
	Postponed  *applied;		/* the one that is being applied; NULL: none */
	CommandId	applied_since;	/* command ID of the first one */
} PostponeRange;

static PostponeRange postpone_range;

void
papply_postpone_begin_range(uint64 first, void (*apply) (PapplyEntry *entry, uint64 seqno))
{
	papply_reorder_begin_range();
	memset(&postpone_range, 0, sizeof(postpone_range));
	postpone_range.first = first;
	postpone_range.apply_change = apply;
	postpone_range.awaited = PAPPLY_NO_SEQNO;
}

/*
 * Is it an UPDATE with the old key, which the publisher sends if the key changes?  With a
 * replica identity that is the whole row, it sends that for each UPDATE, so this is not known.
 */
static bool
changes_key(const PapplyEntry *entry)
{
	const char *data = PapplyEntryData(entry);

	return data[0] == LOGICAL_REP_MSG_UPDATE && data[5] == 'K';
}

/*
 * Might the change have a key in common with one that is postponed, or free a
 * value that it needs?
 *
 * A dependency in this range may hide an older one, of which only the greatest
 * is known: that on an exclusive transaction, or on one of which the rows are
 * not known.  So it counts whatever the table is.
 */
static bool
follows_postponed(PapplyEntry *entry, uint64 seqno, const PapplyTarget *table)
{
	bool		is_insert = PapplyEntryData(entry)[0] == LOGICAL_REP_MSG_INSERT;
	bool		may_free_value = table->has_other_unique && !is_insert;
	bool		frees_key = PapplyEntryData(entry)[0] == LOGICAL_REP_MSG_DELETE || changes_key(entry);

	for (int i = 0; i < postpone_range.count; i++)
		if (postponed[i].seqno <= entry->dependency ||
			(postponed[i].local_relid == table->local_relid &&
			 (postponed[i].seqno == seqno || may_free_value ||
			  (frees_key && postponed[i].takes_key))))
			return true;
	return false;
}

static bool
must_wait(PapplyEntry *entry)
{
	return entry->dependency < postpone_range.first &&
		entry->dependency > papply_pool_committed();
}

static void
pass_postponed(const PapplyTarget *table)
{
	for (int i = 0; i < postpone_range.count; i++)
		postponed[i].is_passed |= postponed[i].local_relid == table->local_relid;
}

/*
 * May the change be postponed?  Its bytes are kept only if all of its
 * transaction is in the queue: see papply_queue_consumed() in writer.c.
 */
static bool
may_be_postponed(PapplyEntry *entry, uint64 seqno, const PapplyTarget *table)
{
	return !table->is_partitioned && !table->is_partition &&
		postpone_range.count < MAX_POSTPONED &&
		papply_queue_is_complete(papply_queue_transaction(seqno)) &&
		PapplyEntryData(entry)[0] != LOGICAL_REP_MSG_INSERT &&
		papply_reorder_is_allowed();
}

static void
postpone_entry(PapplyEntry *entry, uint64 seqno, const PapplyTarget *table)
{
	Postponed  *change = &postponed[postpone_range.count++];

	Assert(postpone_range.applied == NULL);
	Assert(postpone_range.count <= MAX_POSTPONED);
	Assert(postpone_range.count == 1 || change[-1].seqno <= seqno);

	/* rows of the same table that are put off precede the change */
	papply_insert_run_begin_change(PapplyEntryData(entry)[0], table);
	change->entry = entry;
	change->seqno = seqno;
	change->local_relid = table->local_relid;
	change->command_id = GetCurrentCommandId(false);
	change->takes_key = changes_key(entry);
	change->is_passed = false;
	if (entry->dependency < postpone_range.first)
		postpone_range.awaited = Max(postpone_range.awaited, entry->dependency);
}

bool
papply_postpone_change(PapplyEntry *entry, uint64 seqno)
{
	const PapplyTarget *table;

	if (postpone_range.count == 0 && !must_wait(entry))
		return false;
	table = papply_target_plain(papply_message_get_uint32(PapplyEntryData(entry) + 1),
								entry->relation_version);
	if (table == NULL)
	{
		papply_postpone_apply_all();
		return false;
	}
	if (papply_pool_committed() >= postpone_range.awaited)
		papply_postpone_apply_all();
	if (!must_wait(entry) && !follows_postponed(entry, seqno, table))
	{
		pass_postponed(table);
		return false;
	}
	if (may_be_postponed(entry, seqno, table))
	{
		postpone_entry(entry, seqno, table);
		return true;
	}
	papply_postpone_apply_all();
	return false;
}

void
papply_postpone_apply_all(void)
{
	if (postpone_range.count == 0 || postpone_range.applied != NULL)
		return;
	papply_insert_run_flush();
	postpone_range.applied_since = GetCurrentCommandId(false);
	for (int i = 0; i < postpone_range.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		postpone_range.applied = &postponed[i];
		postpone_range.apply_change(postpone_range.applied->entry, postpone_range.applied->seqno);
	}
	postpone_range.applied = NULL;
	postpone_range.count = 0;
	postpone_range.awaited = PAPPLY_NO_SEQNO;
}

/*
 * Throw an error.  The range is rolled back, and its transactions are applied
 * in their order.
 */
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

	if (postpone_range.applied == NULL)
		return;
	xmin = slot_getsysattr(slot, MinTransactionIdAttributeNumber, &isnull);
	if (!TransactionIdIsCurrentTransactionId(DatumGetTransactionId(xmin)))
		return;
	cmin = DatumGetCommandId(slot_getsysattr(slot, MinCommandIdAttributeNumber, &isnull));
	if (cmin >= postpone_range.applied->command_id && cmin < postpone_range.applied_since)
		refuse_order();
}

void
papply_postpone_check_missing(void)
{
	if (postpone_range.applied != NULL && postpone_range.applied->is_passed)
		refuse_order();
}
