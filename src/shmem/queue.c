/*-------------------------------------------------------------------------
 * queue.c
 *	  Remote transactions in commit order, between the receiver and writers.
 *
 * The receiver appends transactions and frees their space.  Writers claim and
 * read them.
 *
 * Commits happen in order, so space is also freed in order.  Two rings are
 * enough and nothing is ever allocated.  Positions in the byte ring are 64-bit
 * counters that never wrap around.  An entry is contiguous, so readers need no
 * copy and no second piece.  Messages are kept raw until the commit, so that a
 * writer can apply the transaction again or the core apply loop can apply it.
 *
 * A transaction is normally published when it is complete.  One that grows
 * beyond a limit set by the receiver is published earlier, so that it is
 * applied while it arrives.  If it is larger than the ring, the bytes that its
 * writer has read are overwritten once it is the oldest transaction.  From
 * then on only an error of its own can make it start again.
 *
 * Locking: none.  Only the receiver writes published_seqno, write_position and
 * the contents of the rings.  pg_write_barrier() in papply_queue_publish_open()
 * pairs with pg_read_barrier() in papply_claim() and papply_queue_read().
 * Writers advance next_claim by compare and exchange.  A sleeping process sets
 * its mark (data_waiter and space_waiter here, idle_writers in awake.c) before
 * it checks its condition again.  Marks are read after a condition has been
 * changed.  Both sides have a full barrier, so no wakeup is lost.
 *
 * A slot of the transaction ring is reused only when its transaction has been
 * committed and released, hence claimed.  A writer that reads the slot of
 * next_claim and is overtaken fails in its compare and exchange.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "pool.h"
#include "queue.h"

/* Bytes of the ring for each slot: the size of a small transaction. */
#define BYTES_PER_SLOT 512
#define MAX_SLOTS 65536

/* The size of an entry is a multiple of this. */
#define ENTRY_ALIGNMENT 8

/* The segment, as it is mapped in this process. */
typedef struct Mapping
{
	dsm_segment *segment;		/* NULL: not mapped */
	PapplyTransaction *transactions;
	char	   *ring;
} Mapping;

static Mapping mapping;

/* State of the receiver, not used by writers. */
typedef struct Ends
{
	uint64		last_seqno;		/* last one begun */
	uint64		released_seqno; /* last one whose space was freed */
	uint64		head_position;	/* next byte to write */
	uint64		tail_position;	/* first byte that may not be overwritten */
	PapplyEntry *last_entry;	/* the one appended last */
} Ends;

static Ends ends;

static void
map_segment(void)
{
	mapping.transactions = dsm_segment_address(mapping.segment);
	mapping.ring = (char *) (mapping.transactions + papply_pool->queue.transaction_slots);
}

void
papply_queue_create(void)
{
	papply_pool->queue.ring_bytes = (uint64) papply_queue_size * 1024;
	papply_pool->queue.transaction_slots = Min(MAX_SLOTS, papply_pool->queue.ring_bytes / BYTES_PER_SLOT);

	mapping.segment = dsm_create(papply_pool->queue.transaction_slots * sizeof(PapplyTransaction) +
								 papply_pool->queue.ring_bytes, 0);
	dsm_pin_mapping(mapping.segment);
	papply_pool->queue.handle = dsm_segment_handle(mapping.segment);
	map_segment();

	Assert(papply_pool->queue.ring_bytes % ENTRY_ALIGNMENT == 0);
	Assert(papply_pool->queue.transaction_slots > 0);
	ends.last_seqno = ends.released_seqno = 0;
	ends.head_position = ends.tail_position = 0;
}

void
papply_queue_attach(void)
{
	mapping.segment = dsm_attach(papply_pool->queue.handle);
	if (mapping.segment == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not map dynamic shared memory segment")));
	dsm_pin_mapping(mapping.segment);
	map_segment();
}

void
papply_queue_detach(void)
{
	if (mapping.segment != NULL)
		dsm_detach(mapping.segment);
	mapping.segment = NULL;
}

PapplyTransaction *
papply_queue_transaction(uint64 seqno)
{
	Assert(mapping.segment != NULL);
	Assert(seqno != PAPPLY_NO_SEQNO && seqno != PAPPLY_SEQNO_OPEN);
	return &mapping.transactions[seqno % papply_pool->queue.transaction_slots];
}

/*** receiver ***/

/*
 * Return the size of an entry.  At least the size and kind of an entry fit
 * between another one and the end of the ring.
 */
static uint64
entry_size(uint32 length)
{
	return TYPEALIGN64(ENTRY_ALIGNMENT, sizeof(PapplyEntry) + (uint64) length);
}

static uint64
bytes_to_end(uint64 position)
{
	return papply_pool->queue.ring_bytes - position % papply_pool->queue.ring_bytes;
}

static PapplyEntry *
entry_at(uint64 position)
{
	return (PapplyEntry *) (mapping.ring + position % papply_pool->queue.ring_bytes);
}

bool
papply_queue_begin(TransactionId remote_xid, XLogRecPtr final_lsn, uint64 *seqno)
{
	PapplyTransaction *txn;

	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	Assert(ends.last_seqno == 0 || papply_queue_is_complete(papply_queue_transaction(ends.last_seqno)));
	Assert(ends.released_seqno <= ends.last_seqno);
	if (ends.last_seqno - ends.released_seqno >= papply_pool->queue.transaction_slots)
		return false;

	ends.last_seqno++;
	txn = papply_queue_transaction(ends.last_seqno);
	memset(txn, 0, sizeof(*txn));
	txn->start_position = ends.head_position;
	txn->remote_xid = remote_xid;
	txn->final_lsn = final_lsn;
	pg_atomic_init_u32(&txn->state, 0);
	pg_atomic_init_u32(&txn->hold, PAPPLY_TXN_WHOLE);
	*seqno = ends.last_seqno;
	return true;
}

/* Allow half of the ring, because up to as much is wasted where it wraps. */
bool
papply_queue_can_hold(uint32 length)
{
	return entry_size(length) <= papply_pool->queue.ring_bytes / 2;
}

bool
papply_queue_has_space(uint32 length)
{
	uint64		needed = entry_size(length);
	uint64		to_end = bytes_to_end(ends.head_position);

	if (to_end < needed)
		needed += to_end;
	return needed <= papply_pool->queue.ring_bytes - (ends.head_position - ends.tail_position);
}

void
papply_queue_append(uint32 kind, const char *data, uint32 length,
					uint32 relation_version, uint64 dependency)
{
	uint64		needed = entry_size(length);
	uint64		to_end = bytes_to_end(ends.head_position);
	PapplyTransaction *txn = papply_queue_transaction(ends.last_seqno);
	PapplyEntry *entry;

	Assert(!papply_queue_is_complete(txn));
	Assert(papply_queue_has_space(length));
	Assert(dependency <= ends.last_seqno);
	if (to_end < needed)
	{
		entry = entry_at(ends.head_position);
		entry->size = to_end;
		entry->kind = PAPPLY_ENTRY_WRAP;
		ends.head_position += to_end;
	}

	entry = entry_at(ends.head_position);
	entry->size = needed;
	entry->length = length;
	entry->relation_version = relation_version;
	entry->kind = kind;
	entry->ahead = PAPPLY_AHEAD_NONE;
	entry->dependency = dependency;
	memset(&entry->key, 0, sizeof(entry->key));
	ends.last_entry = entry;
	txn->max_dependency = Max(txn->max_dependency, dependency);

	/* of the messages, only row changes have a relation */
	txn->changes += length > 0 && relation_version != 0;
	if (length > 0)
		memcpy(PapplyEntryData(entry), data, length);
	ends.head_position += needed;
	Assert(papply_queue_used_bytes() <= papply_pool->queue.ring_bytes);
}

void
papply_queue_set_key(const PapplyKeyName *key)
{
	Assert(ends.last_entry != NULL && ends.last_entry->length > 0);
	ends.last_entry->key = *key;
}

/* Pairs with the read barriers in papply_claim() and papply_queue_read(). */
void
papply_queue_publish_open(void)
{
	uint64		waiter;

	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	Assert(pg_atomic_read_u64(&papply_pool->queue.write_position) <= ends.head_position);
	Assert(pg_atomic_read_u64(&papply_pool->queue.published_seqno) <= ends.last_seqno);
	pg_write_barrier();
	pg_atomic_write_u64(&papply_pool->queue.write_position, ends.head_position);
	pg_write_barrier();
	pg_atomic_write_u64(&papply_pool->queue.published_seqno, ends.last_seqno);
	pg_memory_barrier();

	waiter = pg_atomic_read_u64(&papply_pool->queue.data_waiter);
	if (waiter != 0)
		waiter = pg_atomic_exchange_u64(&papply_pool->queue.data_waiter, 0);
	if (waiter != 0)			/* still */
		papply_pool_wake(waiter - 1);
}

void
papply_queue_end(XLogRecPtr remote_end_lsn)
{
	PapplyTransaction *txn = papply_queue_transaction(ends.last_seqno);

	Assert(!papply_queue_is_complete(txn));
	txn->end_position = ends.head_position;
	txn->remote_end_lsn = remote_end_lsn;
	pg_write_barrier();
	pg_atomic_fetch_or_u32(&txn->state, PAPPLY_TXN_COMPLETE);
	papply_queue_publish_open();
}

bool
papply_queue_open_is_published(void)
{
	return pg_atomic_read_u64(&papply_pool->queue.published_seqno) == ends.last_seqno;
}

uint64
papply_queue_used_bytes(void)
{
	return ends.head_position - ends.tail_position;
}

uint64
papply_queue_open_size(void)
{
	return ends.head_position - papply_queue_transaction(ends.last_seqno)->start_position;
}

uint64
papply_queue_unpublished_bytes(void)
{
	return ends.head_position - pg_atomic_read_u64(&papply_pool->queue.write_position);
}

static void
add_state(uint64 seqno, uint32 bits)
{
	pg_atomic_fetch_or_u32(&papply_queue_transaction(seqno)->state, bits);
}

PapplyApplier
papply_queue_applier(uint64 seqno)
{
	return papply_queue_state(papply_queue_transaction(seqno)) & PAPPLY_TXN_APPLIER;
}

void
papply_queue_mark_leader_transaction(uint64 seqno)
{
	add_state(seqno, PAPPLY_BY_LEADER_POLICY);
}

void
papply_queue_leave_to_leader(uint64 seqno, PapplyApplier applier, PapplyCounter reason)
{
	Assert(seqno > papply_pool_committed());
	Assert(applier != PAPPLY_BY_WRITER);
	Assert(reason >= PAPPLY_COUNT_FALLBACK_SYNC && reason <= PAPPLY_COUNT_FALLBACK_NO_WRITER);
	papply_queue_transaction(seqno)->fallback_reason = reason;
	add_state(seqno, applier);
}

void
papply_queue_set_exclusivity(uint64 seqno, PapplyExclusivity exclusivity)
{
	Assert(seqno == ends.last_seqno);
	add_state(seqno, exclusivity);
}

bool
papply_queue_is_exclusive(uint64 seqno)
{
	return (papply_queue_state(papply_queue_transaction(seqno)) & PAPPLY_TXN_EXCLUSIVITY) ==
		PAPPLY_EXCLUSIVE;
}

bool
papply_queue_is_separate(uint64 seqno)
{
	return (papply_queue_state(papply_queue_transaction(seqno)) & PAPPLY_TXN_EXCLUSIVITY) !=
		PAPPLY_IN_BATCH;
}

void
papply_queue_mark_in_progress(uint64 seqno)
{
	Assert(seqno == ends.last_seqno && !papply_queue_is_complete(papply_queue_transaction(seqno)));
	add_state(seqno, PAPPLY_TXN_IN_PROGRESS);
}

bool
papply_queue_is_in_progress(uint64 seqno)
{
	return (papply_queue_state(papply_queue_transaction(seqno)) & PAPPLY_TXN_IN_PROGRESS) != 0;
}

void
papply_queue_leave_unclaimed_to_leader(void)
{
	for (uint64 seqno = pg_atomic_read_u64(&papply_pool->queue.next_claim);
		 seqno <= ends.last_seqno; seqno++)
	{
		if (!papply_queue_is_in_progress(seqno) &&
			!papply_queue_is_by_leader(papply_queue_transaction(seqno)))
			papply_queue_leave_to_leader(seqno, PAPPLY_BY_LEADER, PAPPLY_COUNT_FALLBACK_NO_WRITER);
	}
}

uint64
papply_queue_last_seqno(void)
{
	return ends.last_seqno;
}

uint64
papply_queue_released_seqno(void)
{
	return ends.released_seqno;
}

PapplyTransaction *
papply_queue_oldest_committed(void)
{
	if (ends.released_seqno >= papply_pool_committed())
		return NULL;
	pg_read_barrier();			/* pairs with papply_commit_order_advance() */
	return papply_queue_transaction(ends.released_seqno + 1);
}

void
papply_queue_skip(uint64 seqno)
{
	(void) pg_atomic_compare_exchange_u64(&papply_pool->queue.next_claim, &seqno, seqno + 1);
}

/*
 * Writers do not claim a transaction that the leader applied, so advance
 * next_claim past it.  Otherwise its slot could be read after it was reused.
 */
void
papply_queue_release(void)
{
	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	Assert(ends.released_seqno < papply_pool_committed());
	ends.released_seqno++;
	Assert(papply_queue_transaction(ends.released_seqno)->end_position >= ends.tail_position);
	ends.tail_position = papply_queue_transaction(ends.released_seqno)->end_position;
	Assert(ends.tail_position <= ends.head_position);
	papply_queue_skip(ends.released_seqno);
}

bool
papply_queue_reclaim_read(PapplyWriterSlot *writer)
{
	uint64		oldest = ends.released_seqno + 1;
	PapplyTransaction *txn = papply_queue_transaction(oldest);
	uint32		hold = PAPPLY_TXN_WHOLE;
	uint64		position;

	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	if (oldest != ends.last_seqno || writer == NULL)
		return false;
	position = pg_atomic_read_u64(&writer->read_position);
	if (position <= ends.tail_position)
		return false;
	if (!pg_atomic_compare_exchange_u32(&txn->hold, &hold, PAPPLY_TXN_STREAMED) &&
		hold != PAPPLY_TXN_STREAMED)
		return false;

	/* the writer may have rewound before that, but cannot from here on */
	position = pg_atomic_read_u64(&writer->read_position);
	if (position > ends.tail_position)
	{
		Assert(position <= pg_atomic_read_u64(&papply_pool->queue.write_position));
		ends.tail_position = position;
		return true;
	}
	if (hold == PAPPLY_TXN_WHOLE)
		pg_atomic_write_u32(&txn->hold, PAPPLY_TXN_WHOLE);	/* nothing was reclaimed */
	return false;
}

void
papply_queue_want_space(void)
{
	pg_atomic_write_u64(&papply_pool->queue.space_waiter,
						Min(ends.head_position, ends.tail_position + papply_pool->queue.ring_bytes / 4));
	pg_memory_barrier();
}

/*** writers ***/

PapplyEntry *
papply_queue_read(uint64 *position)
{
	for (;;)
	{
		PapplyEntry *entry;

		if (*position >= pg_atomic_read_u64(&papply_pool->queue.write_position))
			return NULL;
		pg_read_barrier();		/* pairs with papply_queue_publish_open() */

		entry = entry_at(*position);
		Assert(entry->size > 0 && entry->size % ENTRY_ALIGNMENT == 0);
		Assert(entry->size <= bytes_to_end(*position));
		*position += entry->size;
		if (entry->kind != PAPPLY_ENTRY_WRAP)
			return entry;
	}
}

/*
 * The slot of next_claim cannot be reused meanwhile, because the caller has
 * claimed an older transaction and not committed it.
 */
uint64
papply_queue_unclaimed_position(void)
{
	uint64		next = pg_atomic_read_u64(&papply_pool->queue.next_claim);

	if (next > pg_atomic_read_u64(&papply_pool->queue.published_seqno))
		return PG_UINT64_MAX;
	pg_read_barrier();			/* pairs with papply_queue_publish_open() */
	return papply_queue_transaction(next)->start_position;
}

PapplyEntry *
papply_queue_look_ahead(uint64 *position)
{
	for (;;)
	{
		uint64		ahead = pg_atomic_read_u64(&papply_pool->queue.ahead_position);
		uint64		next = Max(ahead, papply_queue_unclaimed_position());
		PapplyEntry *entry;

		if (next == PG_UINT64_MAX)
			return NULL;
		entry = papply_queue_read(&next);
		if (entry == NULL)
			return NULL;
		*position = next - entry->size;
		if (pg_atomic_compare_exchange_u64(&papply_pool->queue.ahead_position, &ahead, next))
			return entry;
	}
}

void
papply_queue_consumed(uint64 position)
{
	uint64		wanted;

	Assert(position <= pg_atomic_read_u64(&papply_pool->queue.write_position));
	pg_memory_barrier();		/* after all reads */
	pg_atomic_write_u64(&papply_pool_my_writer_slot()->read_position, position);
	pg_memory_barrier();		/* pairs with papply_queue_want_space() */
	wanted = pg_atomic_read_u64(&papply_pool->queue.space_waiter);
	if (wanted != 0 && position >= wanted)
	{
		pg_atomic_write_u64(&papply_pool->queue.space_waiter, 0);
		papply_pool_wake(PAPPLY_WAITER_RECEIVER);
	}
}

bool
papply_queue_want_data(uint64 position)
{
	uint64		mine = papply_pool_waiter + 1;
	uint64		other;

	Assert(papply_pool_waiter < PAPPLY_MAX_WRITERS);

	/* full barrier, pairs with papply_queue_publish_open() */
	other = pg_atomic_exchange_u64(&papply_pool->queue.data_waiter, mine);

	/*
	 * Only one writer has a transaction whose rest is missing, but this one
	 * may be late to notice that its own is complete.
	 */
	if (other != 0 && other != mine)
		papply_pool_wake(other - 1);
	return pg_atomic_read_u64(&papply_pool->queue.write_position) <= position;
}

void
papply_queue_got_data(void)
{
	uint64		mark = papply_pool_waiter + 1;

	/* another writer may already wait for the next transaction */
	(void) pg_atomic_compare_exchange_u64(&papply_pool->queue.data_waiter, &mark, 0);
}

bool
papply_queue_rewind(uint64 seqno)
{
	PapplyTransaction *txn = papply_queue_transaction(seqno);
	uint32		hold = PAPPLY_TXN_WHOLE;

	Assert(papply_pool_committed() < seqno);
	if (!pg_atomic_compare_exchange_u32(&txn->hold, &hold, PAPPLY_TXN_REWINDING))
		return false;
	pg_atomic_write_u64(&papply_pool_my_writer_slot()->read_position, txn->start_position);
	pg_memory_barrier();
	pg_atomic_write_u32(&txn->hold, PAPPLY_TXN_WHOLE);
	return true;
}

bool
papply_queue_can_rewind(uint64 seqno)
{
	return pg_atomic_read_u32(&papply_queue_transaction(seqno)->hold) != PAPPLY_TXN_STREAMED;
}

bool
papply_queue_is_in_flight(void)
{
	return papply_pool_committed() < pg_atomic_read_u64(&papply_pool->queue.published_seqno);
}

uint64
papply_queue_backlog(void)
{
	uint64		next = pg_atomic_read_u64(&papply_pool->queue.next_claim);
	uint64		published = pg_atomic_read_u64(&papply_pool->queue.published_seqno);

	return published >= next ? published - next + 1 : 0;
}
