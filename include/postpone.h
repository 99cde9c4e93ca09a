/*-------------------------------------------------------------------------
 * room: writer
 *
 * postpone.h
 *	  Changes that are left for later, as what they depend on is not committed.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_POSTPONE_H
#define PAPPLY_POSTPONE_H

#include "executor/tuptable.h"

#include "queue.h"

/*
 * A range that begins at first is to be applied: nothing is postponed.  apply applies a
 * change of one of its transactions, after it has waited for what that depends on.
 */
extern void papply_postpone_begin_range(uint64 first,
										void (*apply) (PapplyEntry *entry, uint64 seqno));

/*
 * Returns true if that change of a transaction of the range is left for later.  Else it
 * is to be applied now; those before it that it must not pass have been.  Throws what
 * applying does.
 */
extern bool papply_postpone_change(PapplyEntry *entry, uint64 seqno);

/* Applies all that is postponed, in its order.  Throws what applying does. */
extern void papply_postpone_apply_all(void);

/*
 * For each change that is being applied: its row was found, in slot, or is not there.
 * Throws if the change was postponed, and one that passed it may have changed that row.
 */
extern void papply_postpone_check_row(TupleTableSlot *slot);
extern void papply_postpone_check_missing(void);

#endif							/* PAPPLY_POSTPONE_H */
