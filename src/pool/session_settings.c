/*-------------------------------------------------------------------------
 * session_settings.c
 *	  Settings and temporary tables that code of the user leaves in its session.
 *
 * Runs in the receiver and in writers.
 *
 * A trigger may call set_config(), or SET a variable, not for its transaction but for the
 * session, and another trigger reads it in a later transaction.  The same goes for a
 * temporary table.  PostgreSQL's own apply has one session, so the later trigger finds what
 * the earlier one has left.  Writers have a session each.
 *
 * So this is done as with advisory locks (session_locks.c).  A writer that finds such a
 * setting at the end of a transaction, or that a temporary table was used, rolls back and
 * leaves the transaction to the native loop.  As long as the receiver's session has a
 * setting of this kind, or a temporary schema, everything that runs triggers is left to
 * the native loop.  These transactions are applied one after the other in any case.
 *
 * A temporary table with ON COMMIT DROP leaves nothing but the schema.  The transaction
 * is left to the native loop all the same, since which tables are of that kind is known
 * to the server alone.
 *
 * session_replication_role has rules of its own: replication_role.c.
 *
 * The alternative, to copy settings from session to session, would have to copy variables
 * of every kind, and there is none for temporary tables.
 *
 * Locking: has_session_settings is written by the receiver alone.  A writer that reads an
 * older value has a transaction that is younger than the one that has changed it, and
 * begins code of the user only in its turn; unless the triggers of its table are declared
 * to need nothing of the kind.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "pool.h"
#include "session_settings.h"

static bool
is_replication_role(const struct config_generic *setting)
{
	return strcmp(setting->name, "session_replication_role") == 0;
}

/*
 * Return whether the setting is one of the session, or will be when the transaction is
 * committed.  In a transaction that has changed it the newest stack entry says how.
 */
static bool
is_left(const struct config_generic *setting)
{
	if (setting->stack == NULL)
		return setting->source == PGC_S_SESSION;
	switch (setting->stack->state)
	{
		case GUC_SET:
			return setting->source == PGC_S_SESSION;
		case GUC_SET_LOCAL:
			return true;
		default:
			return setting->stack->source == PGC_S_SESSION;
	}
}

static bool
has_settings(void)
{
	int			count;
	struct config_generic **settings = papply_compat_settings(&count);
	bool		found = false;

	for (int i = 0; i < count && !found; i++)
		found = is_left(settings[i]) && !is_replication_role(settings[i]);
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
	static bool is_reported = false;
	bool		has_some;

	if (IsTransactionState())
		return;
	has_some = has_temporary_schema() || has_settings();
	pg_atomic_write_u32(&papply_pool->has_session_settings, has_some);
	if (!has_some || is_reported)
		return;
	is_reported = true;
	ereport(LOG,
			(errmsg("apply worker of subscription \"%s\" keeps a setting or a temporary table",
					MySubscription->name),
			 errdetail("Transactions that run triggers are applied by PostgreSQL's own apply until it starts again.")));
}

/*** anybody ***/

bool
papply_session_settings_are_kept(void)
{
	return pg_atomic_read_u32(&papply_pool->has_session_settings) != 0;
}

/*** writers ***/

static void
refuse(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("settings and temporary tables of a session are left to the apply worker")));
}

void
papply_session_settings_check_begin(void)
{
	if (papply_session_settings_are_kept())
		refuse();
}

void
papply_session_settings_check_end(void)
{
	if ((MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0 || has_settings())
		refuse();
}
