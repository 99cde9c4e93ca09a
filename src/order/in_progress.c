/*-------------------------------------------------------------------------
 * in_progress.c
 *	  Streamed transactions that a writer applies before their end is known.
 *
 * Runs in the receiver and in writers.
 *
 * The states of a place:
 *
 *	   free --> offered --> taken --> ended --> free
 *				   |		 |  \
 *				   v		 v	 v
 *				  free	given up  revoked --> free
 *						or failed
 *
 * The receiver offers, ends and revokes a transaction, and frees the place
 * after the commit, or when the transaction was given up.  A writer takes it
 * or gives it up, and frees the place of a revoked one.  Each step that either
 * process can make is a compare and exchange.  Once the transaction has ended,
 * it is in the queue and belongs to this writer: no other writer claims it
 * (PAPPLY_TXN_IN_PROGRESS).  If it has to be rolled back after that, the core
 * apply loop applies it in its turn, from its file.
 *
 * A streamed transaction is younger than every transaction in the queue, so
 * another writer must remain to apply the queue.  The last remaining writer
 * does not take one: the queue would wait for it to end, and it would wait for
 * the queue.  For the same reason a writer gives its transaction up if the
 * other writers exit, even while it waits for its turn.
 *
 * There are several places because several large transactions may be open at a
 * time.  Three of a million rows each are visible 6.2 s after their commits,
 * with one place 12.7 s, and by PostgreSQL's own apply 23.5 s (bench/large
 * --rows 3000000 --sessions 3 --streaming on --writers 8).  In a backlog, where
 * they end soon after they have begun, one place would be enough.
 *
 * The writer of a revoked transaction may be waiting for a lock, so it also
 * gets a signal that cancels this wait.
 *
 * The last transaction of all must not be applied while an exclusive one is
 * in the queue (exclusive.c).  So streamed transactions that have not ended are
 * given up then, and none is taken, or ends in its place, until that one has
 * committed.
 *
 * A streamed transaction keeps its xid for as long as the publisher likes, and
 * the creation of a logical slot waits for all such xids.  So nothing is
 * offered while a slot is or may be created (decoding.c), and what has not
 * ended is given up.  The writer checks this while it sleeps and periodically
 * while it applies; the receiver checks it for a writer that waits for a lock.
 *
 * Locking: none.  The fields of a place are written before its state, with a
 * write barrier between, and read after it.  papply_in_progress_offer() and
 * papply_awake_sleep() each have a full barrier between what they store and
 * what they check, so a writer cannot fall asleep on an offer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include <signal.h>

#include "miscadmin.h"
#include "port/pg_bitutils.h"

#include "claim.h"
#include "decoding.h"
#include "exclusive.h"
#include "in_progress.h"
#include "pool.h"
#include "queue.h"

/* The bits of a state above the kind hold 1 + the writer that has taken it. */
#define WRITER_SHIFT 8
#define KIND_MASK 0xFF

/* The transaction that this writer has taken, or NULL. */
static PapplyInProgress *volatile mine = NULL;

static PapplyInProgressKind
kind_of(PapplyInProgress *in_progress)
{
	return pg_atomic_read_u32(&in_progress->state) & KIND_MASK;
}

/* The writer that has taken it according to the state, or -1. */
static int
writer_of(uint32 state)
{
	return (int) (state >> WRITER_SHIFT) - 1;
}

#ifdef USE_ASSERT_CHECKING
/* The kinds that may follow each, as in the drawing. */
#define BIT(kind) (1 << (kind))
static const uint32 successors[] = {
	[PAPPLY_IN_PROGRESS_NONE] = BIT(PAPPLY_IN_PROGRESS_OFFERED),
	[PAPPLY_IN_PROGRESS_OFFERED] = BIT(PAPPLY_IN_PROGRESS_NONE) | BIT(PAPPLY_IN_PROGRESS_TAKEN),
	[PAPPLY_IN_PROGRESS_TAKEN] = BIT(PAPPLY_IN_PROGRESS_GIVEN_UP) | BIT(PAPPLY_IN_PROGRESS_FAILED) |
	BIT(PAPPLY_IN_PROGRESS_REVOKED) | BIT(PAPPLY_IN_PROGRESS_ENDED),
	[PAPPLY_IN_PROGRESS_GIVEN_UP] = BIT(PAPPLY_IN_PROGRESS_NONE),
	[PAPPLY_IN_PROGRESS_FAILED] = BIT(PAPPLY_IN_PROGRESS_NONE),
	[PAPPLY_IN_PROGRESS_REVOKED] = BIT(PAPPLY_IN_PROGRESS_NONE),
	[PAPPLY_IN_PROGRESS_ENDED] = BIT(PAPPLY_IN_PROGRESS_NONE)
};
#endif

/* Change the kind of a place if it is from, and keep its writer. */
static bool
move_state(PapplyInProgress *in_progress, PapplyInProgressKind from, PapplyInProgressKind to)
{
	uint32		state = pg_atomic_read_u32(&in_progress->state);

	Assert((successors[from] & BIT(to)) != 0);
	while ((state & KIND_MASK) == from)
	{
		uint32		new_state = (state & ~KIND_MASK) | to;

		if (pg_atomic_compare_exchange_u32(&in_progress->state, &state, new_state))
			return true;
	}
	return false;
}

/*
 * The writers that are present, will stay, and do not apply a streamed
 * transaction, hence can apply the queue.
 */
static uint64
writers_apart_from(uint64 in_progress_writers)
{
	uint64		wanted = pg_atomic_read_u64(&papply_pool->wanted_writers);
	uint64		mask = wanted >= 64 ? PG_UINT64_MAX : (UINT64CONST(1) << wanted) - 1;

	return pg_atomic_read_u64(&papply_pool->awake.present_writers) & ~in_progress_writers & mask;
}

static uint64
other_writers(void)
{
	return writers_apart_from(pg_atomic_read_u64(&papply_pool->in_progress.writers));
}

/*** receiver ***/

bool
papply_in_progress_is_allowed(void)
{
	/* reading ahead is worth more, and is not done from a file */
	return papply_streaming_apply == PAPPLY_STREAMING_WRITER && !papply_exclusive_is_in_force() &&
		!papply_decoding_waits_for_xids() && !papply_awake_reads_ahead();
}

/*
 * Can a writer be spared?  At most half of them take streamed transactions,
 * and each pending offer will occupy one.  Some may still be starting.
 */
static bool
may_offer(void)
{
	int			wanted = (int) pg_atomic_read_u64(&papply_pool->wanted_writers);
	int			writers = wanted - papply_in_progress_count();

	for (int i = 0; i < PAPPLY_MAX_IN_PROGRESS; i++)
		writers -= kind_of(&papply_pool->in_progress.places[i]) == PAPPLY_IN_PROGRESS_OFFERED;

	return papply_in_progress_is_allowed() &&
		writers > Max(1, wanted / 2);
}

int
papply_in_progress_offer(TransactionId xid, const PapplySpoolFile *file)
{
	Assert(TransactionIdIsValid(xid));
	for (int i = 0; i < PAPPLY_MAX_IN_PROGRESS && may_offer(); i++)
	{
		PapplyInProgress *in_progress = &papply_pool->in_progress.places[i];

		if (kind_of(in_progress) != PAPPLY_IN_PROGRESS_NONE)
			continue;
		in_progress->xid = xid;
		in_progress->file = *file;
		pg_atomic_write_u64(&in_progress->bytes, 0);
		pg_write_barrier();		/* pairs with papply_in_progress_take() */
		pg_atomic_write_u32(&in_progress->state, PAPPLY_IN_PROGRESS_OFFERED);
		pg_memory_barrier();	/* pairs with papply_awake_sleep() */
		(void) papply_awake_wake_spare();
		return i;
	}
	return PAPPLY_NO_PLACE;
}

/*
 * Wake its writer, after the caller has changed a field.  The barrier pairs
 * with that of the writer's sleep.
 */
static void
wake_writer_of(PapplyInProgress *in_progress)
{
	int			writer;

	pg_memory_barrier();
	writer = writer_of(pg_atomic_read_u32(&in_progress->state));
	if (writer >= 0)
		papply_pool_wake(writer);
}

/*
 * Interrupt its writer, which may wait for a lock or hold locks that others
 * wait for.  A writer that has noticed the change by itself has freed the
 * place.
 */
static void
signal_writer_of(PapplyInProgress *in_progress)
{
	int			writer = writer_of(pg_atomic_read_u32(&in_progress->state));
	pid_t		pid = writer < 0 ? 0 : papply_pool->writers[writer].pid;

	if (pid != 0)
		(void) kill(pid, SIGUSR2);
}

void
papply_in_progress_publish(int place, uint64 bytes)
{
	Assert(bytes >= pg_atomic_read_u64(&papply_pool->in_progress.places[place].bytes));
	Assert(kind_of(&papply_pool->in_progress.places[place]) != PAPPLY_IN_PROGRESS_NONE);
	pg_atomic_write_u64(&papply_pool->in_progress.places[place].bytes, bytes);
	wake_writer_of(&papply_pool->in_progress.places[place]);
	if (kind_of(&papply_pool->in_progress.places[place]) == PAPPLY_IN_PROGRESS_OFFERED)
		(void) papply_awake_wake_spare();	/* writers may have been kept from
											 * taking it */
}

bool
papply_in_progress_end(int place, uint64 seqno, const PapplyCommit *commit)
{
	PapplyInProgress *in_progress = &papply_pool->in_progress.places[place];

	Assert(seqno > papply_pool_committed());
	in_progress->seqno = seqno;
	in_progress->commit = *commit;
	pg_write_barrier();			/* pairs with papply_in_progress_has_ended() */
	return !papply_exclusive_forbids(PAPPLY_SEQNO_OPEN) &&
		move_state(in_progress, PAPPLY_IN_PROGRESS_TAKEN,
				   PAPPLY_IN_PROGRESS_ENDED);
}

void
papply_in_progress_complete(int place)
{
	Assert(kind_of(&papply_pool->in_progress.places[place]) == PAPPLY_IN_PROGRESS_ENDED);
	wake_writer_of(&papply_pool->in_progress.places[place]);
}

void
papply_in_progress_revoke(int place)
{
	PapplyInProgress *in_progress = &papply_pool->in_progress.places[place];

	/* its writer may take it or give it up concurrently */
	while (!move_state(in_progress, PAPPLY_IN_PROGRESS_OFFERED, PAPPLY_IN_PROGRESS_NONE) &&
		   !move_state(in_progress, PAPPLY_IN_PROGRESS_GIVEN_UP, PAPPLY_IN_PROGRESS_NONE) &&
		   !move_state(in_progress, PAPPLY_IN_PROGRESS_FAILED, PAPPLY_IN_PROGRESS_NONE))
	{
		if (!move_state(in_progress, PAPPLY_IN_PROGRESS_TAKEN, PAPPLY_IN_PROGRESS_REVOKED))
			continue;
		signal_writer_of(in_progress);
		break;
	}
}

bool
papply_in_progress_has_failed(int place)
{
	return kind_of(&papply_pool->in_progress.places[place]) == PAPPLY_IN_PROGRESS_FAILED;
}

bool
papply_in_progress_is_leaving(int place, TransactionId xid)
{
	PapplyInProgress *in_progress = &papply_pool->in_progress.places[place];

	return kind_of(in_progress) == PAPPLY_IN_PROGRESS_REVOKED && in_progress->xid == xid;
}

void
papply_in_progress_release(int place)
{
	bool		is_released PG_USED_FOR_ASSERTS_ONLY;

	Assert(papply_pool->in_progress.places[place].seqno <= papply_pool_committed());
	is_released = move_state(&papply_pool->in_progress.places[place], PAPPLY_IN_PROGRESS_ENDED,
							 PAPPLY_IN_PROGRESS_NONE);
	Assert(is_released);
}

int
papply_in_progress_count(void)
{
	return pg_popcount64(pg_atomic_read_u64(&papply_pool->in_progress.writers));
}

/*** any process ***/

/*
 * Return the number of the transaction in this place if it has ended, else
 * PAPPLY_NO_SEQNO, and its writer, or -1.
 */
static uint64
number_in(PapplyInProgress *in_progress, int *writer)
{
	uint32		state = pg_atomic_read_u32(&in_progress->state);

	pg_read_barrier();			/* pairs with papply_in_progress_end() */
	*writer = writer_of(state);
	return (state & KIND_MASK) == PAPPLY_IN_PROGRESS_ENDED ? in_progress->seqno : PAPPLY_NO_SEQNO;
}

PapplyWriterSlot *
papply_in_progress_writer_of(PapplyPool *pool, uint64 seqno)
{
	int			writer;

	Assert(seqno != PAPPLY_NO_SEQNO);
	for (int i = 0; i < PAPPLY_MAX_IN_PROGRESS; i++)
		if (number_in(&pool->in_progress.places[i], &writer) == seqno)
			return &pool->writers[writer];
	return NULL;
}

/*
 * The receiver may not have freed the place of a committed transaction yet, so
 * compare with the committed number.
 */
uint64
papply_in_progress_number_of(int writer)
{
	uint64		committed = papply_pool_committed();
	int			owner;

	for (int i = 0; i < PAPPLY_MAX_IN_PROGRESS; i++)
	{
		uint64		seqno = number_in(&papply_pool->in_progress.places[i], &owner);

		if (owner == writer && seqno > committed)
			return seqno;
	}
	return PAPPLY_SEQNO_OPEN;
}

/*** writers ***/

bool
papply_in_progress_may_take(void)
{
	bool		is_offered = false;

	for (int i = 0; i < PAPPLY_MAX_IN_PROGRESS; i++)
		is_offered |= kind_of(&papply_pool->in_progress.places[i]) == PAPPLY_IN_PROGRESS_OFFERED;
	return is_offered && !papply_exclusive_forbids(PAPPLY_SEQNO_OPEN) &&
		(other_writers() & ~papply_pool_my_bit()) != 0;
}

/*
 * Mark this writer as busy, unless no other one would remain.  Other writers
 * may try the same concurrently.
 */
static bool
set_my_bit(void)
{
	uint64		bits = pg_atomic_read_u64(&papply_pool->in_progress.writers);

	while ((writers_apart_from(bits) & ~papply_pool_my_bit()) != 0)
	{
		if (pg_atomic_compare_exchange_u64(&papply_pool->in_progress.writers, &bits,
										   bits | papply_pool_my_bit()))
			return true;
	}
	return false;
}

bool
papply_in_progress_take(void)
{
	uint32		taken = PAPPLY_IN_PROGRESS_TAKEN | (papply_pool_waiter + 1) << WRITER_SHIFT;

	Assert(mine == NULL);
	if (!papply_in_progress_may_take() || !set_my_bit())
		return false;
	for (int i = 0; i < PAPPLY_MAX_IN_PROGRESS; i++)
	{
		uint32		offered = PAPPLY_IN_PROGRESS_OFFERED;

		if (!pg_atomic_compare_exchange_u32(&papply_pool->in_progress.places[i].state, &offered, taken))
			continue;
		mine = &papply_pool->in_progress.places[i];

		/* this writer may have been woken for the queue's sake */
		papply_awake_wake_for_work();
		return true;
	}
	papply_in_progress_leave();
	return false;
}

/*
 * Is the place of this kind, and still this writer's?  The receiver frees the
 * place after the commit, and another writer can get it.
 */
static bool
mine_is(PapplyInProgressKind kind)
{
	uint32		state;

	if (mine == NULL)
		return false;
	state = pg_atomic_read_u32(&mine->state);
	return (state & KIND_MASK) == kind && writer_of(state) == papply_pool_waiter;
}

PapplyInProgress *
papply_in_progress_mine(void)
{
	return mine;
}

void
papply_in_progress_handle_revoke(void)
{
	if (mine_is(PAPPLY_IN_PROGRESS_REVOKED))
		papply_pool_cancel();
}

uint64
papply_in_progress_number(void)
{
	if (!mine_is(PAPPLY_IN_PROGRESS_ENDED))
		return PAPPLY_SEQNO_OPEN;
	pg_read_barrier();			/* pairs with papply_in_progress_end() */
	return mine->seqno;
}

/* The transaction's slot in the queue is not reused before its commit. */
bool
papply_in_progress_has_ended(PapplyCommit *commit)
{
	uint64		seqno = papply_in_progress_number();

	if (seqno == PAPPLY_SEQNO_OPEN || !papply_queue_is_complete(papply_queue_transaction(seqno)))
		return false;
	*commit = mine->commit;
	return true;
}

void
papply_in_progress_check(void)
{
	bool		is_revoked = mine_is(PAPPLY_IN_PROGRESS_REVOKED);

	if (mine != NULL && (is_revoked || other_writers() == 0))
		ereport(ERROR,
				(errcode(ERRCODE_TRANSACTION_ROLLBACK),
				 errmsg("cannot apply streamed transaction before its end"),
				 is_revoked ? 0 :
				 errdetail("No other writer is available for queued transactions.")));
}

void
papply_in_progress_check_slots(void)
{
	if (mine_is(PAPPLY_IN_PROGRESS_TAKEN) && papply_decoding_waits_for_xids())
		ereport(ERROR,
				(errcode(ERRCODE_TRANSACTION_ROLLBACK),
				 errmsg("a logical replication slot would wait for the streamed transaction")));
}

/* Give up what has not ended.  If it was revoked meanwhile, free the place. */
bool
papply_in_progress_give_up(bool for_good)
{
	Assert(mine != NULL);
	if (move_state(mine, PAPPLY_IN_PROGRESS_TAKEN,
				   for_good ? PAPPLY_IN_PROGRESS_FAILED : PAPPLY_IN_PROGRESS_GIVEN_UP))
		return true;
	if (kind_of(mine) == PAPPLY_IN_PROGRESS_ENDED)
		return false;
	Assert(mine_is(PAPPLY_IN_PROGRESS_REVOKED));
	pg_atomic_write_u32(&mine->state, PAPPLY_IN_PROGRESS_NONE);

	/* discard the interrupt of the receiver's signal */
	QueryCancelPending = false;
	return true;
}

void
papply_in_progress_leave(void)
{
	pg_atomic_fetch_and_u64(&papply_pool->in_progress.writers, ~papply_pool_my_bit());
	mine = NULL;

	/*
	 * it may wait for this with a transaction that has to be exclusive
	 * (route.c)
	 */
	papply_pool_wake(PAPPLY_WAITER_RECEIVER);
}
