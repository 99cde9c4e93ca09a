/*-------------------------------------------------------------------------
 * claim.c
 *	  Which writer applies which transactions of the queue.
 *
 * Runs in writers.
 *
 * A writer claims the next transactions by advancing next_claim, so they are
 * claimed in commit order.  Small ones are claimed as a batch, which becomes
 * one local transaction.
 *
 * The time at which the local transaction begins, for now() in defaults, is
 * that of the claim.  So it never decreases in commit order, although writers
 * begin in any order and may have to begin again: who reads rows by
 * increasing times misses none, as with PostgreSQL's own apply.  User code that
 * runs in its turn has the time of that (writer.c).
 *
 * Locking: none, see queue.c.  A writer that reads the slot of next_claim and
 * is overtaken fails in its compare and exchange.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"

#include "claim.h"
#include "in_progress.h"
#include "pool.h"
#include "queue.h"

/* No writer claims these: they belong to the receiver or to one writer. */
#define FOR_OTHERS (PAPPLY_BY_LEADER | PAPPLY_TXN_IN_PROGRESS)

/* A batch is not extended beyond this size. */
#define MAX_BATCH_BYTES (256 * 1024)

static void
set_claim(uint64 first, uint64 last)
{
	PapplyWriterSlot *writer_slot = papply_pool_my_writer_slot();

	Assert(first <= last);
	writer_slot->last_seqno = last;
	writer_slot->first_seqno = first;
}

void
papply_claim_in_progress(uint64 seqno)
{
	set_claim(seqno, seqno);
}

/*
 * Must this transaction wait for one that is neither committed nor part of the
 * batch that begins at first?  One with several changes need not, because the
 * writer can postpone the change that has to wait (postpone.c).
 */
static bool
must_wait(const PapplyTransaction *txn, uint64 first)
{
	return txn->changes <= 1 && txn->max_dependency < first &&
		txn->max_dependency > papply_pool_committed();
}

/*
 * Can a transaction in this state be claimed with others that have the same
 * one?
 */
static bool
has_company(uint32 state)
{
	return state == (PAPPLY_TXN_COMPLETE | PAPPLY_BY_WRITER | PAPPLY_IN_BATCH) ||
		state == (PAPPLY_TXN_COMPLETE | PAPPLY_BY_WRITER | PAPPLY_EXCLUSIVE);
}

static bool
is_exclusive(uint32 state)
{
	return (state & PAPPLY_TXN_EXCLUSIVITY) == PAPPLY_EXCLUSIVE;
}

/*
 * Can a batch in this state be extended by this transaction?  A batch that can
 * be applied immediately must not wait in its middle.  One whose first
 * transaction waits takes only others that depend on an uncommitted one, even
 * on one of the batch, and delays no transaction that could be applied now.
 * Exclusive transactions wait for their turns anyway.
 */
static bool
can_extend(uint64 seqno, uint64 first, uint32 state, bool first_waits)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);

	if (papply_queue_state(txn) != state)
		return false;
	pg_read_barrier();			/* pairs with papply_queue_end() */
	if (is_exclusive(state))
		return true;
	return first_waits ? txn->max_dependency > papply_pool_committed() : !must_wait(txn, first);
}

/*
 * Return the last transaction of a batch that begins at first and has this
 * state.  Each writer that may be awake gets a share of the backlog, so that a
 * short one is spread over all of them.  Exclusive transactions never overlap,
 * so one writer gets all of them, which saves switches between processes.
 */
static uint64
end_of_batch(uint64 first, uint32 state, uint64 published, int max)
{
	const PapplyTransaction *txn = papply_queue_transaction(first);
	uint64		share = (published - first) / (is_exclusive(state) ? 1 : papply_awake_sharing());
	uint64		limit = first + Min(share, max - 1);
	uint64		full = txn->start_position + MAX_BATCH_BYTES;
	bool		first_waits = must_wait(txn, first);
	uint64		last = first;

	while (last < limit && papply_queue_transaction(last)->end_position < full &&
		   can_extend(last + 1, first, state, first_waits))
		last++;
	return last;
}

bool
papply_claim_next_must_wait(void)
{
	uint64		next = pg_atomic_read_u64(&papply_pool->queue.next_claim);

	return next <= pg_atomic_read_u64(&papply_pool->queue.published_seqno) &&
		must_wait(papply_queue_transaction(next), next);
}

bool
papply_claim(int max, uint64 *first, uint64 *last)
{
	Assert(max > 0);
	if (papply_awake_is_surplus())
		return false;
	for (;;)
	{
		uint64		next = pg_atomic_read_u64(&papply_pool->queue.next_claim);
		uint64		published = pg_atomic_read_u64(&papply_pool->queue.published_seqno);
		uint64		end = next;
		uint32		state;

		if (next > published)
			return false;
		pg_read_barrier();
		state = papply_queue_state(papply_queue_transaction(next));

		/* not before next is read, so that an older claim has an older time */
		SetCurrentStatementStartTimestamp();
		if (has_company(state))
			end = end_of_batch(next, state, published, max);
		Assert(end >= next && end <= published && end - next < (uint64) max);

		/* other processes must see the range before the claim */
		if (state & FOR_OTHERS)
			set_claim(PAPPLY_NO_SEQNO, PAPPLY_NO_SEQNO);
		else
			set_claim(next, end);
		if (!pg_atomic_compare_exchange_u64(&papply_pool->queue.next_claim, &next, end + 1) ||
			(state & FOR_OTHERS))
			continue;
		if (end < published)
			(void) papply_awake_wake_one();
		*first = next;
		*last = end;
		return true;
	}
}

bool
papply_claim_wait_for_work(long timeout_ms)
{
	set_claim(PAPPLY_NO_SEQNO, PAPPLY_NO_SEQNO);
	return papply_awake_sleep(timeout_ms, papply_in_progress_may_take);
}
