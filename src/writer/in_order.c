/*-------------------------------------------------------------------------
 * in_order.c
 *	  Relations whose changes are not applied before their turn, for a while.
 *
 * Runs in a writer; no shared memory, no lock, no I/O.
 *
 * If transactions move a unique value from row to row, the message of an
 * UPDATE contains the value that a row gets, but usually not the one that it
 * gives up.  So the receiver does not know that the transaction that takes the
 * value depends on the one that gives it up (row_keys.c).  If another writer
 * applies the first one too early, it violates the unique constraint, and its
 * whole batch is rolled back and repeated transaction by transaction.  If a
 * table is used like this, that happens to nearly every batch.
 *
 * So a writer that has seen such a violation waits for its turn before it
 * changes that relation, for MIN_CHANGES changes.  Each further violation
 * doubles that number, unless it occurs long after the last change that
 * waited.  N changes then cost a writer about log2(N / MIN_CHANGES) failures,
 * and a table with a rare violation loses little.  Batches are still formed,
 * and other tables are applied as before.
 *
 * Each writer learns from its own failures only.  With a list in shared memory
 * all writers would learn from the first one, but every change would have to
 * look there.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "clock.h"
#include "in_order.h"

/* Minimum and maximum number of changes that wait. */
#define MIN_CHANGES 256
#define MAX_CHANGES (1 << 20)

/*
 * A violation this long after the last change that waited is treated as the
 * first.
 */
#define FORGET_MS 60000

/*
 * A writer has this many places for relations.  Of those with the same place,
 * it remembers the last one that was violated.
 */
#define PLACES 64

typedef struct OrderedRelation
{
	LogicalRepRelId remote_relid;
	int			length;			/* changes that wait after a violation */
	int			left;			/* of these, not seen yet */
	int64		ended_at;		/* when left became 0 */
} OrderedRelation;

static OrderedRelation places[PLACES];

void
papply_in_order_note_violation(LogicalRepRelId remote_relid)
{
	OrderedRelation *rel = &places[remote_relid % PLACES];

	if (rel->remote_relid != remote_relid ||
		(rel->left == 0 && papply_clock_has_passed(rel->ended_at, papply_clock_now(), FORGET_MS)))
		rel->length = 0;
	rel->remote_relid = remote_relid;
	rel->length = Min(MAX_CHANGES, Max(MIN_CHANGES, 2 * rel->length));
	rel->left = rel->length;
}

bool
papply_in_order_must_wait(LogicalRepRelId remote_relid)
{
	OrderedRelation *rel = &places[remote_relid % PLACES];

	if (rel->left == 0 || rel->remote_relid != remote_relid)
		return false;
	if (--rel->left == 0)
		rel->ended_at = papply_clock_now();
	return true;
}
