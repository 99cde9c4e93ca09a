/*-------------------------------------------------------------------------
 * leader_policy.h
 *	  Choose transactions that the receiver applies itself.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LEADER_POLICY_H
#define PAPPLY_LEADER_POLICY_H

#include "access/xlogdefs.h"

/*
 * Note that there was nothing to read until now, as far as is known.  Return
 * the present time of clock.h.
 */
extern int64 papply_leader_policy_idle(void);

/*
 * May the receiver apply the transaction that begins, if it turns out to be
 * small?  Nothing else is in flight.
 */
extern bool papply_leader_policy_may_begin(void);

/*
 * May the receiver apply it from its beginning?  These are the positions in the
 * publisher's WAL of its first change and of its end.
 */
extern bool papply_leader_policy_may_start(XLogRecPtr first_lsn, XLogRecPtr final_lsn);

/* It is small: should the receiver apply it? */
extern bool papply_leader_policy_keeps_up(void);

/* The core apply loop begins to apply a leader transaction, and has applied it. */
extern void papply_leader_policy_begin(void);
extern void papply_leader_policy_end(void);

#endif							/* PAPPLY_LEADER_POLICY_H */
