/*-------------------------------------------------------------------------
 * queue.h
 *	  Remote transactions in commit order, between the receiver and writers.
 *
 * A dynamic shared memory segment holds two rings: one of bytes (entries: raw
 * messages with their dependency) and one of transactions (where the entries
 * of each begin).  A transaction has a dense sequence number, 1, 2, 3 ... in
 * commit order, which determines its slot in the ring.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_QUEUE_H
#define PAPPLY_QUEUE_H

#include "port/atomics.h"
#include "storage/dsm.h"

#include "slot_data.h"
#include "writer_slot.h"

/* Part of the pool.  Atomic, because work is handed over without a lock. */
typedef struct PapplySharedQueue
{
	/* set by the receiver before writers start */
	dsm_handle	handle;
	uint64		ring_bytes;
	uint32		transaction_slots;

	/* receiver -> writers */
	pg_atomic_uint64 published_seqno;	/* may be claimed */
	pg_atomic_uint64 write_position;	/* may be read */
	char		pad1[PG_CACHE_LINE_SIZE];

	/* between writers */
	pg_atomic_uint64 next_claim;
	pg_atomic_uint64 ahead_position;	/* everything before was looked at, or
										 * need not be */
	char		pad2[PG_CACHE_LINE_SIZE];

	/* set by the process that sleeps, cleared by the one that wakes it */
	pg_atomic_uint64 data_waiter;	/* 1 + writer that sleeps for bytes, or 0 */
	pg_atomic_uint64 space_waiter;	/* receiver sleeps until read_position
									 * reaches this, or 0 */
} PapplySharedQueue;

/*
 * The state of a transaction is one word, so that a writer that claims it sees
 * all of it: two flags, who applies it, and how exclusively.  Bits are only
 * ever set, except in a new transaction.  So a value includes the bits of each
 * one that it may replace.
 */
#define PAPPLY_TXN_COMPLETE		0x01	/* its COMMIT is in the queue */
#define PAPPLY_TXN_IN_PROGRESS		0x02	/* its changes are in a file, and
											 * have been applied by the writer
											 * that has it: in_progress.h */

typedef enum PapplyApplier
{
	PAPPLY_BY_WRITER = 0,		/* the writer that claims it or has it */
	PAPPLY_BY_LEADER = 0x04,	/* a fallback: the leader applies it in its
								 * turn */
	PAPPLY_BY_LEADER_POLICY = 0x0C, /* the same, because of leader_policy.c */
	PAPPLY_BY_LEADER_EXCLUSIVE = 0x14	/* the same, because a writer gave it
										 * up: nothing younger is applied
										 * meanwhile */
} PapplyApplier;

#define PAPPLY_TXN_APPLIER		0x1C

typedef enum PapplyExclusivity
{
	PAPPLY_IN_BATCH = 0,		/* with others in a local transaction */
	PAPPLY_SEPARATE = 0x20,		/* in a local transaction of its own */
	PAPPLY_EXCLUSIVE = 0x60		/* the same, and it begins in its turn; a
								 * hint, the writer decides */
} PapplyExclusivity;

#define PAPPLY_TXN_EXCLUSIVITY		0x60

/*
 * Can a transaction be read from its beginning again?  Changed by compare and
 * exchange, since the receiver wants the space and the writer the bytes.
 */
typedef enum PapplyTxnHold
{
	PAPPLY_TXN_WHOLE = 0,		/* all its bytes are present */
	PAPPLY_TXN_REWINDING,		/* the writer is about to read them again; the
								 * receiver must not take any */
	PAPPLY_TXN_STREAMED			/* the receiver has reused bytes; the
								 * transaction can only be fetched again */
} PapplyTxnHold;

typedef struct PapplyTransaction
{
	/* written by the receiver before it publishes the transaction */
	uint64		start_position;
	TransactionId remote_xid;
	uint32		changes;		/* of rows; grows while the transaction
								 * arrives */
	XLogRecPtr	final_lsn;		/* in the publisher's WAL, as in BEGIN */
	uint64		max_dependency; /* greatest dependency of its changes */
	TimestampTz commit_time;	/* on the publisher */
	uint32		local_changes;	/* counter of remote_relation.h when it began */

	/*
	 * Why the transaction is applied exclusively and by the apply worker; 0
	 * if it is not.  Each is a PapplyCounter, counted at the commit.  The
	 * receiver writes them before it sets PAPPLY_TXN_COMPLETE; a writer that
	 * gives the transaction up also writes the second one.
	 */
	uint16		exclusive_reason;
	uint16		fallback_reason;

	/* written by the receiver before it sets PAPPLY_TXN_COMPLETE */
	uint64		end_position;
	XLogRecPtr	remote_end_lsn;

	/* written by the process that commits it, before committed_seqno */
	XLogRecPtr	local_end_lsn;	/* in the subscriber's WAL */

	/* atomic, see above */
	pg_atomic_uint32 state;
	pg_atomic_uint32 hold;
} PapplyTransaction;

/* Header of a message in the byte ring. */
typedef struct PapplyEntry
{
	uint32		size;			/* distance to the next entry, in bytes */
	uint16		kind;			/* PAPPLY_ENTRY_…; the last field of a WRAP */
	uint16		ahead;			/* PAPPLY_AHEAD_…, written by any writer */
	uint32		length;			/* of the message; 0: only its relation
								 * version matters, for a fallback */
	uint32		relation_version;	/* relation_registry.h; 0: none */
	PapplyKeyName key;			/* reason for the dependency */
	uint64		dependency;		/* must be committed before this message is
								 * applied */
} PapplyEntry;

#define PAPPLY_ENTRY_MESSAGE	1
#define PAPPLY_ENTRY_WRAP		2	/* continue at the beginning of the ring */
#define PAPPLY_ENTRY_OVERSIZE	3	/* placeholder of a message larger than
									 * the ring */

/* Which of an entry's pages were prefetched (read_ahead.c).  A hint. */
#define PAPPLY_AHEAD_NONE		0
#define PAPPLY_AHEAD_LEAF		1	/* that of the index; the row's page is
									 * not known yet */
#define PAPPLY_AHEAD_DONE		2	/* all, or there are none to prefetch */

#define PapplyEntryData(entry) ((char *) (entry) + sizeof(PapplyEntry))

/* Receiver: create the segment for papply_pool, with papply_queue_size. */
extern void papply_queue_create(void);

/* Writer: attach to the segment. */
extern void papply_queue_attach(void);

/* Receiver: detach from the segment, after the writers have exited. */
extern void papply_queue_detach(void);

/*
 * Return the transaction with this number, which must not have been released.
 */
extern PapplyTransaction *papply_queue_transaction(uint64 seqno);

/*** verbs of the receiver ***/

/* Begin the next transaction.  Returns false if no slot is free. */
extern bool papply_queue_begin(TransactionId remote_xid, XLogRecPtr final_lsn,
							   uint64 *seqno);

/* Can a message of this length ever fit? */
extern bool papply_queue_can_hold(uint32 length);

/* Is there space for a message of this length now? */
extern bool papply_queue_has_space(uint32 length);

/* Append a message to the open transaction.  There must be space for it. */
extern void papply_queue_append(uint32 kind, const char *data, uint32 length,
								uint32 relation_version, uint64 dependency);

/* Record the key that makes the message appended last depend on others. */
extern void papply_queue_set_key(const PapplyKeyName *key);

/* Publish the open transaction, which is complete. */
extern void papply_queue_end(XLogRecPtr remote_end_lsn);

/* Publish what the open transaction has so far. */
extern void papply_queue_publish_open(void);

/* Has part of the open transaction been published before its end? */
extern bool papply_queue_open_is_published(void);

/* Return the number of bytes in the ring that must not be overwritten. */
extern uint64 papply_queue_used_bytes(void);

/*
 * Return the bytes of the open transaction so far, and the bytes that are not
 * published yet.
 */
extern uint64 papply_queue_open_size(void);
extern uint64 papply_queue_unpublished_bytes(void);

static inline uint32
papply_queue_state(const PapplyTransaction *txn)
{
	return pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &txn->state));
}

static inline bool
papply_queue_is_complete(const PapplyTransaction *txn)
{
	return (papply_queue_state(txn) & PAPPLY_TXN_COMPLETE) != 0;
}

/* Will the leader apply it, for whatever reason? */
static inline bool
papply_queue_is_by_leader(const PapplyTransaction *txn)
{
	return (papply_queue_state(txn) & PAPPLY_BY_LEADER) != 0;
}

extern PapplyApplier papply_queue_applier(uint64 seqno);

/*
 * Leave the transaction, open or complete, to the leader.  The second function
 * also notes why; a writer calls it, too.
 */
extern void papply_queue_mark_leader_transaction(uint64 seqno);
extern void papply_queue_leave_to_leader(uint64 seqno, PapplyApplier applier,
										 PapplyCounter reason);

/*
 * Set the exclusivity of the open transaction.  Everything after an exclusive
 * one must depend on it.
 */
extern void papply_queue_set_exclusivity(uint64 seqno, PapplyExclusivity exclusivity);
extern bool papply_queue_is_exclusive(uint64 seqno);
extern bool papply_queue_is_separate(uint64 seqno); /* that, or
													 * PAPPLY_SEPARATE */

/*
 * Leave the open transaction to the writer that has applied it in progress
 * (in_progress.h).
 */
extern void papply_queue_mark_in_progress(uint64 seqno);
extern bool papply_queue_is_in_progress(uint64 seqno);

/*
 * Leave everything that is not claimed to the leader, because there is no
 * writer.
 */
extern void papply_queue_leave_unclaimed_to_leader(void);

/*
 * Return the numbers of the last transaction begun and of the last released.
 */
extern uint64 papply_queue_last_seqno(void);
extern uint64 papply_queue_released_seqno(void);

/* Advance the claim past this transaction if it is the next one to claim. */
extern void papply_queue_skip(uint64 seqno);

/*
 * Return the oldest committed transaction whose space has not been freed, or
 * NULL.  papply_queue_release() frees it.
 */
extern PapplyTransaction *papply_queue_oldest_committed(void);
extern void papply_queue_release(void);

/*
 * Free the space of the oldest transaction, which is larger than the ring, that
 * its writer, or NULL, has read.  Returns false if there was none.
 */
extern bool papply_queue_reclaim_read(PapplyWriterSlot *writer);

/*
 * Sleep mark: have the receiver woken when the oldest transaction's writer has
 * read further.
 */
extern void papply_queue_want_space(void);

/*** verbs of writers ***/

/*
 * Return the entry at *position of a transaction, and advance *position.  NULL
 * means that the entry has not arrived yet (the transaction is incomplete).
 */
extern PapplyEntry *papply_queue_read(uint64 *position);

/*
 * Return the next entry that is neither claimed nor looked at before, and its
 * position; NULL if there is none.  Its bytes remain valid while this process
 * has claimed a transaction and not committed it.
 */
extern PapplyEntry *papply_queue_look_ahead(uint64 *position);

/* Return the position before which everything has been claimed. */
extern uint64 papply_queue_unclaimed_position(void);

/* Allow everything before position to be overwritten. */
extern void papply_queue_consumed(uint64 position);

/*
 * Set the mark that this writer sleeps for more bytes, or clear it.  The first
 * returns false if there are more already.
 */
extern bool papply_queue_want_data(uint64 position);
extern void papply_queue_got_data(void);

/*
 * Prepare to read the transaction, which is rolled back, from its beginning again.
 * Until this is called, what was read of it may be overwritten.  Returns false if
 * part of it has been.
 */
extern bool papply_queue_rewind(uint64 seqno);

/* Would papply_queue_rewind() succeed? */
extern bool papply_queue_can_rewind(uint64 seqno);

/* Is any transaction published and not committed? */
extern bool papply_queue_is_in_flight(void);

/* Return the number of transactions that are published and not claimed. */
extern uint64 papply_queue_backlog(void);

#endif							/* PAPPLY_QUEUE_H */
