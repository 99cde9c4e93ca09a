/*-------------------------------------------------------------------------
 * room: pool
 *
 * replication_role.h
 *	  session_replication_role, which a trigger may change.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REPLICATION_ROLE_H
#define PAPPLY_REPLICATION_ROLE_H

/* Does this session fire only the triggers that are enabled for replicas? */
extern bool papply_role_is_replica(void);

/*
 * Receiver, between transactions, or a writer: may writers apply what comes next?  They
 * may not once a transaction has left another role in the session.
 */
extern bool papply_role_suits_writers(void);

/* Writer, committed and still in its turn: give the role that is left to the pool. */
extern void papply_role_pass_on(void);

/* Receiver, before the native loop begins a transaction, or has no pool: have that role. */
extern void papply_role_take(void);

/* Receiver, when the native loop has committed, or there is a new pool: that is the role. */
extern void papply_role_leave(void);

#endif							/* PAPPLY_REPLICATION_ROLE_H */
