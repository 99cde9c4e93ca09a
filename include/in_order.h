/*-------------------------------------------------------------------------
 * room: writer
 *
 * in_order.h
 *	  Relations whose changes are not applied before their turn, for a while.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_IN_ORDER_H
#define PAPPLY_IN_ORDER_H

#include "replication/logicalproto.h"

/*
 * Note the error that has ended an attempt before its turn, while a row of
 * this relation was being changed.  Ignored unless it is a violation of a
 * unique or exclusion constraint.
 */
extern void papply_in_order_note_error(int sqlerrcode, LogicalRepRelId remote_relid);

/*
 * Return whether the next change of this relation must wait for the turn, and
 * count it.
 */
extern bool papply_in_order_must_wait(LogicalRepRelId remote_relid);

#endif							/* PAPPLY_IN_ORDER_H */
