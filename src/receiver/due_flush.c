/*-------------------------------------------------------------------------
 * due_flush.c
 *	  Decide when commits are flushed.
 *
 * Runs in the receiver, while there is a pool.  wal_flush.c does the flushes.
 *
 * A session of the publisher may wait for a flush, but the protocol does not
 * tell whether one does.  A publisher with the library requests the flushes
 * that sessions wait for (coalesce.c).  Another publisher gets all flushes at once
 * if its settings say that sessions wait.  Otherwise probably no session
 * waits; but settings may be changed during the stream, and a session may have
 * its own, so the time is short.
 *
 * Flushes that no session waits for are deferred: each one costs a write to
 * the device and two switches between processes.  PostgreSQL's own apply
 * leaves them to the walwriter, with its wal_writer_delay.  A flush is not
 * deferred for some milliseconds if transactions come so slowly that no other
 * commit is likely to come before it.
 *
 * Nothing is deferred if the subscription commits synchronously, because then
 * nothing is reported before the flush.  The subscriber's own walsenders send
 * only what is flushed.  The delay is short for them, too: with PostgreSQL's
 * own apply they wait for the walwriter.  But a flush for each commit would
 * wake each of them for each transaction, which quadruples their processor
 * time (bench/mesh --clients 4: 21 us per transaction instead of 6).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"

#include "clock.h"
#include "due_flush.h"
#include "feedback.h"
#include "lifecycle.h"
#include "test_hooks.h"
#include "wal_flush.h"

/* How long a commit waits for a writer that is free to flush it. */
#define PATIENCE_MS 5

/*
 * How long it is deferred if the publisher says that no session waits for it,
 * and if its settings do.
 */
#define NOT_ASKED_MS 100
#define NOT_SET_UP_MS 10

typedef struct FlushPolicy
{
	PapplyFlushes when;
	XLogRecPtr	asked_lsn;		/* of the publisher's WAL */
	int64		unflushed_since;	/* and not being flushed; 0: not the case */
} FlushPolicy;

static FlushPolicy policy = {.when = PAPPLY_FLUSHES_AT_ONCE};

void
papply_due_flush_set(PapplyFlushes when)
{
	policy.when = when;
}

/* Are flushes deferred until they are requested or overdue? */
static bool
is_held(void)
{
	return policy.when != PAPPLY_FLUSHES_AT_ONCE &&
		synchronous_commit <= SYNCHRONOUS_COMMIT_OFF &&
		papply_feedback_flushed_lsn(papply_lifecycle_is_idle()) >= policy.asked_lsn;
}

bool
papply_due_flush_ask(void)
{
	XLogRecPtr	received_lsn = papply_feedback_received_lsn();
	bool		is_new = received_lsn > policy.asked_lsn;

	policy.asked_lsn = received_lsn;
	papply_wal_flush_hold(is_held());
	return policy.when == PAPPLY_FLUSHES_ASKED && is_new;
}

bool
papply_due_flush_is_expected(void)
{
	return papply_feedback_has_unflushed() && !is_held();
}

static void
flush_all(void)
{
	(void) papply_due_flush_ask();
	papply_feedback_flush(true);
}

void
papply_due_flush_regularly(void)
{
	if (papply_test_defer_ms(0) == 0)
		flush_all();
}

long
papply_due_flush_look(bool is_slow)
{
	bool		has_unflushed = papply_feedback_has_unflushed();
	bool		waits_for_standbys = papply_feedback_waits_for_standbys();
	bool		holds = is_held();
	long		allowed_ms = PATIENCE_MS;	/* from the commit to the flush */

	if (holds)
		allowed_ms = papply_test_defer_ms(policy.when == PAPPLY_FLUSHES_ASKED ? NOT_ASKED_MS :
										  is_slow ? 0 : NOT_SET_UP_MS);
	papply_wal_flush_hold(holds);
	if (has_unflushed && (waits_for_standbys || !papply_wal_flush_is_active()))
	{
		int64		now = papply_clock_now();

		if (!waits_for_standbys &&
			!papply_clock_has_lasted(&policy.unflushed_since, now, allowed_ms))
			return Max(1, allowed_ms - (now - policy.unflushed_since) / 1000);
		flush_all();
	}
	policy.unflushed_since = 0;
	return -1;
}
