/*-------------------------------------------------------------------------
 * room: writer
 *
 * reorder.h
 *	  May this local transaction be something else than one remote one, in its order?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REORDER_H
#define PAPPLY_REORDER_H

/* Another range of transactions is applied. */
extern void papply_reorder_begin_range(void);

/*
 * May changes be made in another order, and together with those of other transactions?
 * In a transaction, which may get its xid by this.  The answer "yes" holds to its end.
 */
extern bool papply_reorder_is_allowed(void);

/* Throws if a batch that has been claimed may not be one: there is a slot since then. */
extern void papply_reorder_check_batch(void);

#endif							/* PAPPLY_REORDER_H */
