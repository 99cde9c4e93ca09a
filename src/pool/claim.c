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
 * Locking: none, see queue.c.  A writer that reads the slot of next_claim and
 * is overtaken fails in its compare and exchange.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "awake.h"
#include "claim.h"
#include "early.h"
#include "queue.h"

/* No writer claims these: they belong to the receiver or to one writer. */
#define FOR_OTHERS (PAPPLY_BY_LEADER | PAPPLY_TXN_EARLY)

/* A batch is not extended beyond this size. */
#define MAX_BATCH_BYTES (256 * 1024)

static void
set_claim(uint64 first, uint64 last)
{
	PapplyWriterSlot *slot = &papply_pool->writers[papply_pool_waiter];

	slot->last_seqno = last;
	slot->first_seqno = first;
}

void
papply_claim_early(uint64 seqno)
{
	set_claim(seqno, seqno);
}

/*
 * Must this transaction wait for one that is neither committed nor part of the
 * batch?  One with several changes need not, because the writer can postpone
 * the change that has to wait (postpone.c).
 */
static bool
must_wait(uint64 seqno, uint64 first)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);

	return txn->changes <= 1 && txn->max_dependency < first &&
		txn->max_dependency > papply_pool_committed();
}

/*
 * Can a batch that begins at first be extended by this transaction?  A
 * transaction that could be applied immediately must not come after one that
 * has to wait, nor must the batch wait in its middle.  But a batch whose first
 * transaction waits can take others that wait.
 */
static bool
fits_batch(uint64 seqno, uint64 first, bool first_waits)
{
	if (first_waits)
		return papply_queue_transaction(seqno)->max_dependency >
			papply_pool_committed();
	return !must_wait(seqno, first);
}

/*
 * Can a transaction in this state be claimed with others that have the same
 * one?
 */
static bool
has_company(uint32 state)
{
	return state == (PAPPLY_TXN_COMPLETE | PAPPLY_BY_WRITER | PAPPLY_IN_BATCH) ||
		state == (PAPPLY_TXN_COMPLETE | PAPPLY_BY_WRITER | PAPPLY_SERIAL);
}

/*
 * Return the last transaction of a batch that begins at first and has this
 * state.  Each writer that may be awake gets a share of the backlog, so that a
 * short one is spread over all of them.  Serial transactions never overlap, so
 * one writer gets all of them, which saves switches between processes.
 */
static uint64
end_of_batch(uint64 first, uint32 state, uint64 published, int max)
{
	bool		is_serial = (state & PAPPLY_TXN_COMPANY) == PAPPLY_SERIAL;
	uint64		limit = max;
	uint64		bytes = 0;
	uint64		last = first;
	bool		first_waits = must_wait(first, first);

	if (!is_serial)
		limit = Min(limit, (published - first) / papply_awake_sharing() + 1);
	for (;;)
	{
		PapplyTransaction *txn = papply_queue_transaction(last);

		bytes += txn->end_position - txn->start_position;
		if (last == published || last - first + 1 >= limit || bytes >= MAX_BATCH_BYTES)
			return last;
		txn = papply_queue_transaction(last + 1);
		if (papply_queue_state(txn) != state)
			return last;
		pg_read_barrier();
		if (!is_serial && !fits_batch(last + 1, first, first_waits))
			return last;
		last++;
	}
}

bool
papply_claim_next_must_wait(void)
{
	uint64		next = pg_atomic_read_u64(&papply_pool->next_claim);

	return next <= pg_atomic_read_u64(&papply_pool->published_seqno) &&
		must_wait(next, next);
}

bool
papply_claim(int max, uint64 *first, uint64 *last)
{
	if (papply_awake_is_surplus())
		return false;
	for (;;)
	{
		uint64		next = pg_atomic_read_u64(&papply_pool->next_claim);
		uint64		published = pg_atomic_read_u64(&papply_pool->published_seqno);
		uint64		end = next;
		uint32		state;

		if (next > published)
			return false;
		pg_read_barrier();
		state = papply_queue_state(papply_queue_transaction(next));
		if (has_company(state))
			end = end_of_batch(next, state, published, max);

		/* other processes must see the range before the claim */
		if (!(state & FOR_OTHERS))
			set_claim(next, end);
		if (!pg_atomic_compare_exchange_u64(&papply_pool->next_claim, &next, end + 1))
			continue;
		if (state & FOR_OTHERS)
		{
			set_claim(PAPPLY_NO_SEQNO, PAPPLY_NO_SEQNO);
			continue;
		}
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
	return papply_awake_sleep(timeout_ms, papply_early_may_take);
}
