/*-------------------------------------------------------------------------
 * replication_role.h
 *	  Changes of session_replication_role by triggers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REPLICATION_ROLE_H
#define PAPPLY_REPLICATION_ROLE_H

/* Does this session fire only the triggers that are enabled for replicas? */
extern bool papply_role_is_replica(void);

/*
 * Receiver between transactions, or writer: may writers apply what comes next?
 * They may not after a transaction has left another role in the session.
 */
extern bool papply_role_suits_writers(void);

/*
 * Writer, after the commit and still in its turn: copy the role to the pool.
 */
extern void papply_role_pass_on(void);

/*
 * Receiver, before the core apply loop begins a transaction or the pool ends:
 * set the role of the session to that of the pool, if there is one.
 */
extern void papply_role_take(void);

/*
 * Receiver, after a commit of the core apply loop, or when a pool starts: set
 * the role of the pool to that of the session.
 */
extern void papply_role_leave(void);

#endif							/* PAPPLY_REPLICATION_ROLE_H */
