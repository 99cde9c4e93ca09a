/*-------------------------------------------------------------------------
 * postpone.h
 *	  Changes that are postponed because their dependency is not committed yet.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_POSTPONE_H
#define PAPPLY_POSTPONE_H

#include "executor/tuptable.h"

#include "queue.h"

/*
 * Begin a range of transactions, with nothing postponed.  apply must wait for
 * the dependency of a change of the range and then apply the change.
 */
extern void papply_postpone_begin_range(uint64 first,
										void (*apply) (PapplyEntry *entry, uint64 seqno));

/*
 * Postpone a change of a transaction of the range, and return true; or return
 * false if the change must be applied now.  In that case, the postponed
 * changes that it must not pass have been applied.  Must be called in a local
 * transaction.  Throws what applying throws.
 */
extern bool papply_postpone_change(PapplyEntry *entry, uint64 seqno);

/*
 * Apply all postponed changes, in their order.  Throws what applying throws.
 */
extern void papply_postpone_apply_all(void);

/*
 * Call for each change that is being applied, if its row was found (in slot),
 * or if it is missing.  Throws an error if the change was postponed, and one
 * that passed it may have changed that row.
 */
extern void papply_postpone_check_row(TupleTableSlot *slot);
extern void papply_postpone_check_missing(void);

#endif							/* PAPPLY_POSTPONE_H */
