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
 * small?  Nothing else is in flight.  The publisher has sent it age_us
 * microseconds after its commit.
 */
extern bool papply_leader_policy_may_begin(int64 age_us);

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

/* Between the two, the receiver has slept until there was more to read. */
extern void papply_leader_policy_slept(void);

/*
 * Return for how many milliseconds writers apply everything after a leader
 * transaction: it took elapsed_us, of which this process used a processor for
 * cpu_us, and it has waited, or wanted a processor all the time.
 */
extern int	papply_leader_policy_pause_ms(int64 elapsed_us, int64 cpu_us, bool has_waited);

#endif							/* PAPPLY_LEADER_POLICY_H */
