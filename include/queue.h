/*-------------------------------------------------------------------------
 * room: pool
 *
 * queue.h
 *	  Remote transactions in commit order, between the receiver and writers.
 *
 * Two rings in a dynamic shared memory segment: bytes (entries: whole raw
 * messages with their dependency), and transactions (where their entries
 * begin).  A transaction has a dense sequence number, 1, 2, 3 ... in commit
 * order; its place in the ring follows from it.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_QUEUE_H
#define PAPPLY_QUEUE_H

#include "datatype/timestamp.h"

#include "pool.h"
#include "statistics.h"

/* Flags of a transaction; only ever set, except in a new one. */
#define PAPPLY_TXN_COMPLETE		0x01	/* its COMMIT is in the queue */
#define PAPPLY_TXN_NATIVE		0x02	/* the receiver replays it in its turn */
#define PAPPLY_TXN_SOLO			0x04	/* a local transaction of its own */
#define PAPPLY_TXN_SERIAL		0x08	/* the same, begun in its turn; a
										 * hint, the writer has the last word */
#define PAPPLY_TXN_LONE			0x10	/* native because of lone.c */
#define PAPPLY_TXN_EARLY		0x20	/* of the writer that has it: early.h */
#define PAPPLY_TXN_GIVEN_UP		0x40	/* native because a writer gave it up:
										 * nothing younger is applied beside
										 * it */

/*
 * Who may go back to the beginning of a transaction.  Decided by compare and
 * exchange, since the receiver wants the space and the writer the bytes.
 */
typedef enum PapplyTxnHold
{
	PAPPLY_TXN_WHOLE = 0,		/* all its bytes are there */
	PAPPLY_TXN_REWINDING,		/* the writer reads them once more; from here
								 * the receiver may not take any */
	PAPPLY_TXN_STREAMED			/* the receiver reused bytes; there is no way
								 * back but fetching it again */
} PapplyTxnHold;

typedef struct PapplyTransaction
{
	/* written by the receiver before it publishes the transaction */
	uint64		start_position;
	TransactionId remote_xid;
	uint32		changes;		/* of rows; grows while it arrives */
	XLogRecPtr	final_lsn;		/* of the publisher's WAL, as in BEGIN */
	uint64		max_dependency; /* greatest of its changes */
	uint64		local_changes;	/* when it began: remote_relation.h */

	/* written by the receiver before it sets PAPPLY_TXN_COMPLETE */
	uint64		end_position;
	XLogRecPtr	remote_end_lsn;

	/*
	 * Why it is applied exclusively, and by the apply worker; 0: it is not. A
	 * PapplyCounter, counted when the transaction is committed.  Written by
	 * the receiver before PAPPLY_TXN_COMPLETE, the second one also by the
	 * writer that gives the transaction up.
	 */
	uint16		exclusive_reason;
	uint16		fallback_reason;

	/* written by whoever commits it, before committed_seqno reaches it */
	XLogRecPtr	local_end_lsn;	/* of the subscriber's WAL */

	/* atomic: see above */
	pg_atomic_uint32 flags;
	pg_atomic_uint32 hold;
} PapplyTransaction;

/* Which key of a change makes it depend on an older transaction? */
typedef struct PapplyKeyName
{
	uint32		is_old:1;		/* the key before the change, else after it */
	uint32		hash:31;		/* 0: no key does, but a barrier */
	Oid			index;			/* a local unique one; InvalidOid: the replica
								 * identity */
} PapplyKeyName;

/* Head of a message in the byte ring. */
typedef struct PapplyEntry
{
	uint32		size;			/* distance to the next entry, in bytes */
	uint32		length;			/* of the message; 0: only its relation
								 * version counts, for a native replay */
	uint32		relation_version;	/* relation_registry.h; 0: none */
	uint16		kind;			/* PAPPLY_ENTRY_… */
	uint16		ahead;			/* PAPPLY_AHEAD_…, by any writer */
	PapplyKeyName key;			/* why the dependency */
	uint64		dependency;		/* commits to wait for before this message */
} PapplyEntry;

#define PAPPLY_ENTRY_MESSAGE	1
#define PAPPLY_ENTRY_WRAP		2	/* go on at the beginning of the ring */
#define PAPPLY_ENTRY_OVERSIZE	3	/* here was a message larger than the ring */

/* Which of its pages were asked for (read_ahead.c); a hint. */
#define PAPPLY_AHEAD_NONE		0
#define PAPPLY_AHEAD_LEAF		1	/* of the index; the row's is not known
									 * yet */
#define PAPPLY_AHEAD_DONE		2	/* all, or there is nothing to ask for */

#define PapplyEntryData(entry) ((char *) (entry) + sizeof(PapplyEntry))

/*
 * Receiver: create the segment for papply_pool, with papply_queue_size.
 * Returns false if the server has no more segments.
 */
extern bool papply_queue_create(void);

/* Writer: attach to it. */
extern void papply_queue_attach(void);

/* Receiver: detach from the segment; writers have left. */
extern void papply_queue_detach(void);

/* The transaction with that number, which must not have been released. */
extern PapplyTransaction *papply_queue_transaction(uint64 seqno);

/*** verbs of the receiver ***/

/* Begin the next transaction; false if no slot is free. */
extern bool papply_queue_begin(TransactionId remote_xid, XLogRecPtr final_lsn,
							   uint64 *seqno);

/* Would a message of that length ever fit? */
extern bool papply_queue_can_hold(uint32 length);

/* Is there space for such a message now? */
extern bool papply_queue_has_space(uint32 length);

/* Append to the open transaction; there must be space. */
extern void papply_queue_append(uint32 kind, const char *data, uint32 length,
								uint32 relation_version, uint64 dependency);

/* The message appended last depends on others because of that key. */
extern void papply_queue_set_key(const PapplyKeyName *key);

/* The open transaction is complete: publish it. */
extern void papply_queue_end(XLogRecPtr remote_end_lsn);

/* Let writers begin with the open transaction, one of which is woken, or read on in it. */
extern void papply_queue_publish_open(void);

/*
 * Wake a sleeping writer if there is work for it; it wakes another one if it
 * leaves some.  Publishing does so only when much has been published, so the
 * receiver calls this before it does anything else than reading on.
 */
extern void papply_queue_wake_writer(void);

/*
 * The open transaction is the only one: let a writer wake up meanwhile, so that
 * it can claim it as soon as it is published.
 */
extern void papply_queue_announce(void);

/* Has the open transaction been published before its end? */
extern bool papply_queue_open_is_published(void);

/* Bytes of the ring that may not be overwritten. */
extern uint64 papply_queue_used_bytes(void);

/* Bytes of the open transaction so far, and those that writers cannot read yet. */
extern uint64 papply_queue_open_size(void);
extern uint64 papply_queue_unpublished_bytes(void);

/* The open transaction (or a complete one) shall be replayed natively. */
extern void papply_queue_mark_native(uint64 seqno, PapplyCounter reason);

/* Writer: the same, because it has failed, or was not allowed. */
extern void papply_queue_mark_given_up(uint64 seqno, PapplyCounter reason);
extern bool papply_queue_is_given_up(uint64 seqno);

/* The same, because it is a lone one (lone.h). */
extern void papply_queue_mark_lone(uint64 seqno);
extern bool papply_queue_is_lone(uint64 seqno);

/* The open transaction is never applied in one local transaction with others. */
extern void papply_queue_mark_solo(uint64 seqno);

/* Nor is it begun before its turn; everything after it depends on it. */
extern void papply_queue_mark_serial(uint64 seqno);

/* Has a transaction been marked serial? */
extern bool papply_queue_is_serial(uint64 seqno);

/* The open transaction belongs to the writer that has applied it early (early.h). */
extern void papply_queue_mark_early(uint64 seqno);
extern bool papply_queue_is_early(uint64 seqno);

/* There is no writer: all that is not claimed shall be replayed natively. */
extern void papply_queue_mark_unclaimed_native(void);

/* Numbers of the last transaction that was begun, and of the last released. */
extern uint64 papply_queue_last_seqno(void);
extern uint64 papply_queue_released_seqno(void);

/* No writer shall claim that one, which is the next to be claimed. */
extern void papply_queue_skip(uint64 seqno);

/*
 * Next committed transaction whose space was not given back yet, or NULL;
 * papply_queue_release() gives it back.
 */
extern PapplyTransaction *papply_queue_oldest_committed(void);
extern void papply_queue_release(void);

/*
 * The oldest transaction is larger than the ring: take back what its writer
 * has read.  Returns false if nothing could be taken.
 */
extern bool papply_queue_reclaim_read(void);

/* Sleep mark: wake the receiver once the oldest's writer has read on. */
extern void papply_queue_want_space(void);

/*** verbs of writers ***/

/*
 * Claim the next transactions, at most max.  False: there is nothing to claim, or
 * enough writers are awake.  Never
 * claims what is marked native or early.  Either all of them are marked serial or
 * none is.
 */
extern bool papply_queue_claim(int max, uint64 *first, uint64 *last);

/* This writer has that transaction (or PAPPLY_SEQNO_OPEN), which nobody else claims. */
extern void papply_queue_claim_early(uint64 seqno);

/*
 * Does the next transaction depend on one that another writer has not committed
 * yet?  A hint.
 */
extern bool papply_queue_next_must_wait(void);

/*
 * Sleep until there may be something to claim, or until the latch is set.
 * Returns false after timeout_ms; -1 for never.
 */
extern bool papply_queue_wait_for_work(long timeout_ms);

/*
 * The entry at *position of a transaction, advancing *position; NULL if it is
 * not there yet (the transaction is incomplete).
 */
extern PapplyEntry *papply_queue_read(uint64 *position);

/*
 * The next entry that nobody has claimed or looked at before, and its position;
 * NULL if there is none.  Its bytes stay as long as this process has claimed
 * something and not committed it.
 */
extern PapplyEntry *papply_queue_look_ahead(uint64 *position);

/* What begins before has been claimed, or looked at ahead. */
extern uint64 papply_queue_unclaimed_position(void);
extern uint64 papply_queue_ahead_position(void);

/* All before position has been used: it may be overwritten if need be. */
extern void papply_queue_consumed(uint64 position);

/* Announce that this writer sleeps for more bytes; false if there are some. */
extern bool papply_queue_want_data(uint64 position);
extern void papply_queue_got_data(void);

/*
 * The writer wants to read the transaction from its beginning again.  False:
 * part of it has been overwritten.
 */
extern bool papply_queue_rewind(uint64 seqno);

/* Could it? */
extern bool papply_queue_can_rewind(uint64 seqno);

/* Something is published and not committed. */
extern bool papply_queue_is_in_flight(void);

/* Transactions published and not claimed. */
extern uint64 papply_queue_backlog(void);

#endif							/* PAPPLY_QUEUE_H */
