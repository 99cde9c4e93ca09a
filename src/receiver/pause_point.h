/*-------------------------------------------------------------------------
 * pause_point.h
 *	  Hold the transactions beyond the position at which a session pauses apply.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PAUSE_POINT_H
#define PAPPLY_PAUSE_POINT_H

#include "access/xlogdefs.h"

#include "parallel_apply.h"

/* This process begins at the progress of the replication origin. */
extern void papply_pause_point_init(XLogRecPtr origin_lsn);

/* Does a session pause the subscription, at any position? */
extern bool papply_pause_point_is_set(void);

/*
 * Must the transaction that is about to begin, with this final LSN, be held?
 * Otherwise it is noted as begun.
 */
extern bool papply_pause_point_holds(XLogRecPtr final_lsn);

/*
 * Return true if the position is reached, and report it.  No transaction is
 * open.  is_idle: all that have begun are committed.
 */
extern bool papply_pause_point_is_reached(bool is_idle);

#endif							/* PAPPLY_PAUSE_POINT_H */
