/*-------------------------------------------------------------------------
 * replication_role.c
 *	  session_replication_role, which a trigger may change.
 *
 * Runs in the receiver and in writers.
 *
 * Changes are applied with the role "replica", in which ordinary triggers do not
 * fire and foreign keys are not checked.  Code that a change runs may set another
 * role, and ordinary triggers fire from there on.  If it is set for the
 * transaction, the writer that applies it goes on, alone, as after a trigger (target.c).
 *
 * If it is set for the session, PostgreSQL's own apply, which has one, keeps the
 * role until it is set again or the apply worker ends.  Writers have a session each.  So
 * a writer passes the role that a transaction leaves on to the pool, before the
 * next transaction has its turn, and is a replica again.  While the pool has another
 * role, writers leave all transactions to the native loop (session.c), whose
 * session takes the role before each; and no pool is wanted (lifecycle.c).
 *
 * Locking: none.  The role of the pool is written by the process that has the turn, and
 * committed_seqno moves after that; who reads it has the turn, or a hint.
 */
#include "parallel_apply.h"

#include "commands/trigger.h"
#include "utils/guc.h"

#include "pool.h"
#include "replication_role.h"

static void
set_role(int role)
{
	const char *name = role == SESSION_REPLICATION_ROLE_REPLICA ? "replica" :
	role == SESSION_REPLICATION_ROLE_LOCAL ? "local" : "origin";

	if (SessionReplicationRole != role)
		SetConfigOption("session_replication_role", name, PGC_SUSET, PGC_S_SESSION);
}

bool
papply_role_is_replica(void)
{
	return SessionReplicationRole == SESSION_REPLICATION_ROLE_REPLICA;
}

bool
papply_role_suits_writers(void)
{
	if (papply_pool == NULL)
		return papply_role_is_replica();
	return pg_atomic_read_u32(&papply_pool->replication_role) == SESSION_REPLICATION_ROLE_REPLICA;
}

void
papply_role_pass_on(void)
{
	if (likely(papply_role_is_replica()))
		return;
	papply_role_leave();
	set_role(SESSION_REPLICATION_ROLE_REPLICA);
}

void
papply_role_take(void)
{
	if (papply_pool != NULL)
		set_role(pg_atomic_read_u32(&papply_pool->replication_role));
}

void
papply_role_leave(void)
{
	if (papply_pool != NULL)
		pg_atomic_write_u32(&papply_pool->replication_role, SessionReplicationRole);
}
