/*-------------------------------------------------------------------------
 * leader_waits.h
 *	  Count waits for locks of the apply worker itself.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LEADER_WAITS_H
#define PAPPLY_LEADER_WAITS_H

/* The core apply loop is about to apply a transaction, or has committed it. */
extern void papply_leader_waits_begin(void);
extern void papply_leader_waits_end(void);

/*
 * Count a wait that has occurred since the last call.  To be called when the
 * core apply loop asks for the next message, and when it has failed.
 */
extern void papply_leader_waits_look(void);

/* Return how long this transaction has waited, in microseconds. */
extern uint64 papply_leader_waits_us(void);

#endif							/* PAPPLY_LEADER_WAITS_H */
