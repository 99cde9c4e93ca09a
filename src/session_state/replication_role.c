/*-------------------------------------------------------------------------
 * replication_role.c
 *	  Changes of session_replication_role by triggers.
 *
 * Runs in the receiver and in writers.
 *
 * Changes are applied with the role "replica", in which ordinary triggers do
 * not fire and foreign keys are not checked.  User code that is run by a
 * change can set another role, so that ordinary triggers fire from there on.
 * If it is set for the transaction, the writer continues alone, as after a
 * trigger (target.c).
 *
 * If it is set for the session, PostgreSQL's own apply, which has only one
 * session, keeps the role until it is set again or the apply worker ends.
 * Each writer has a session of its own.  So a writer copies the role that a
 * transaction leaves into the pool before the next transaction has its turn,
 * and resets its own to "replica".  While the pool has another role, writers
 * leave all transactions to the core apply loop (session.c), which sets the
 * role of its session before each of them, and no pool is wanted
 * (lifecycle.c).
 *
 * Locking: none.  The process in its turn writes the role of the pool, and
 * committed_seqno advances after that.  A process in its turn reads the right
 * value; for others it is a hint.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "commands/trigger.h"
#include "utils/guc.h"

#include "pool.h"
#include "replication_role.h"

static void
set_role(int role)
{
	/* in the order of the SESSION_REPLICATION_ROLE_ constants */
	static const char *const names[] = {"origin", "replica", "local"};

	Assert(role >= 0 && role < lengthof(names));
	if (SessionReplicationRole != role)
		SetConfigOption("session_replication_role", names[role], PGC_SUSET, PGC_S_SESSION);
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
	return pg_atomic_read_u32(&papply_pool->session.replication_role) == SESSION_REPLICATION_ROLE_REPLICA;
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
		set_role(pg_atomic_read_u32(&papply_pool->session.replication_role));
}

void
papply_role_leave(void)
{
	if (papply_pool != NULL)
		pg_atomic_write_u32(&papply_pool->session.replication_role, SessionReplicationRole);
}
