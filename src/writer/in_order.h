/*-------------------------------------------------------------------------
 * in_order.h
 *	  Relations whose changes are not applied before their turn, for a while.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_IN_ORDER_H
#define PAPPLY_IN_ORDER_H

#include "replication/logicalproto.h"

/*
 * Note that an attempt before its turn has violated a unique or exclusion
 * constraint of this relation.
 */
extern void papply_in_order_note_violation(LogicalRepRelId remote_relid);

/*
 * Return whether the next change of this relation must wait for the turn, and
 * count it.
 */
extern bool papply_in_order_must_wait(LogicalRepRelId remote_relid);

#endif							/* PAPPLY_IN_ORDER_H */
