/*-------------------------------------------------------------------------
 * reorder.h
 *	  May a local transaction differ from one remote transaction in its order?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REORDER_H
#define PAPPLY_REORDER_H

/* Begin another range of transactions. */
extern void papply_reorder_begin_range(void);

/*
 * Return whether changes may be made in another order, and together with those
 * of other transactions.  Must be called in a transaction, to which this may
 * assign an xid.  The answer holds until its end.
 */
extern bool papply_reorder_is_allowed(void);

/*
 * Throw an error if the claimed batch must not be applied as a batch, because
 * a slot has been created since.
 */
extern void papply_reorder_check_batch(void);

#endif							/* PAPPLY_REORDER_H */
