/*-------------------------------------------------------------------------
 * session_settings.c
 *	  Settings and temporary tables that user code leaves in its session.
 *
 * Runs in the receiver and in writers.
 *
 * A trigger can set a variable for the session instead of its transaction, by
 * set_config() or SET, and another trigger can read it in a later transaction.
 * The same is true of a temporary table.  PostgreSQL's own apply has only one
 * session, so the later trigger finds what the earlier one has left.  Each
 * writer has a session of its own.
 *
 * So user code that leaves such a thing is left to the receiver
 * (single_session.c).  A setting also affects transactions that run no user
 * code: the server's own functions read it in defaults and when they convert
 * values, and the role decides which tables may be changed.  So as long as the
 * receiver's session has such a setting, or a temporary schema, all
 * transactions are left to the core apply loop.
 *
 * A temporary table with ON COMMIT DROP leaves only the schema.  Its
 * transaction is left to the core apply loop as well, because only the server
 * knows which tables are of this kind.
 *
 * replication_role.c handles session_replication_role.
 *
 * The alternative, copying settings from session to session, would have to
 * support variables of every kind, and does not exist for temporary tables.
 *
 * Locking: the receiver alone writes has_session_settings, before it commits
 * anything more.  A writer reads it in its turn (session.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "pool.h"
#include "session_settings.h"
#include "single_session.h"

static bool has_reported = false;	/* the receiver, that it keeps a setting */

/*
 * Return whether the setting belongs to the session, or will after the commit.
 * If the transaction has changed it, the newest stack entry tells this.
 */
static bool
is_left(const struct config_generic *setting)
{
	if (setting->stack == NULL || setting->stack->state == GUC_SET)
		return setting->source == PGC_S_SESSION;
	return setting->stack->state == GUC_SET_LOCAL || setting->stack->source == PGC_S_SESSION;
}

static bool
has_settings(void)
{
	int			count;
	struct config_generic **settings = papply_compat_settings(&count);
	bool		found = false;

	for (int i = 0; i < count && !found; i++)
		found = is_left(settings[i]) &&
			strcmp(settings[i]->name, "session_replication_role") != 0;
	papply_compat_free_settings(settings);
	return found;
}

static bool
has_temporary_schema(void)
{
	Oid			schema;
	Oid			toast_schema;

	GetTempNamespaceState(&schema, &toast_schema);
	return OidIsValid(schema);
}

/*** receiver ***/

void
papply_session_settings_note(void)
{
	bool		has_some;

	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	if (IsTransactionState())
		return;
	has_some = has_temporary_schema() || has_settings();
	pg_atomic_write_u32(&papply_pool->has_session_settings, has_some);
	if (!has_some || has_reported)
		return;
	(void) papply_single_session_begin();
	has_reported = true;
	ereport(LOG,
			(errmsg("apply worker of subscription \"%s\" keeps a setting or a temporary table",
					MySubscription->name),
			 errdetail("All transactions are applied by PostgreSQL's own apply as long as it does so, "
					   "and those that run user code until it starts again.")));
}

/*** any process ***/

bool
papply_session_settings_exist(void)
{
	return pg_atomic_read_u32(&papply_pool->has_session_settings) != 0;
}

/*** writers ***/

void
papply_session_settings_check_end(void)
{
	Assert(IsTransactionState());
	if ((MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0 || has_settings())
		(void) papply_single_session_begin();
	papply_single_session_check();
}
