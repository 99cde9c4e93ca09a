/*-------------------------------------------------------------------------
 * drop_stored.c
 *	  What statements remove, or must not remove, of stored transactions.
 *
 * Runs in a user's backend.
 *
 * Stored transactions exist nowhere else, and the publisher does not send them
 * again.  Their relations belong to the extension, so the server would drop
 * them with it.  CASCADE is required for that, as for objects that depend on
 * the extension.  A transaction that is still to be skipped and stored would
 * later be lost by the server's own skip, so the skip must be withdrawn first.
 * All of this is also true of DROP OWNED, which drops the extensions of a role.
 * The locks that this takes may wait, and others then wait for them.  So it is
 * left to the server to refuse users who do not own the extension.
 *
 * REFRESH MATERIALIZED VIEW ... WITH NO DATA would empty these relations, and is
 * refused.
 *
 * DROP SUBSCRIPTION removes what is stored of the subscription, since it
 * cannot be replayed without that.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/table.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_subscription.h"
#include "commands/extension.h"
#include "commands/user.h"
#include "nodes/parsenodes.h"
#include "nodes/value.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"

#include "failed.h"
#include "stored.h"

static ProcessUtility_hook_type previous_utility = NULL;
static object_access_hook_type previous_object_access = NULL;

static Oid
owner_of(Oid extension)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	HeapTuple	tuple = get_catalog_object_by_oid(rel, Anum_pg_extension_oid, extension);

	table_close(rel, AccessShareLock);
	return HeapTupleIsValid(tuple) ? ((Form_pg_extension) GETSTRUCT(tuple))->extowner : InvalidOid;
}

static bool
drops_ours(const DropStmt *drop)
{
	ListCell   *cell;

	if (drop->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, drop->objects)
	{
		if (strcmp(strVal(lfirst(cell)), PAPPLY_NAME) == 0)
			return true;
	}
	return false;
}

static void
check_drop(DropBehavior behavior)
{
	if (papply_stored_are_pending())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot drop extension \"%s\" because a transaction is to be skipped and stored",
						PAPPLY_NAME),
				 errhint("Use ALTER SUBSCRIPTION ... SKIP (lsn = NONE), or wait until it is skipped.")));
	if (behavior != DROP_CASCADE && !papply_stored_lock_messages())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot drop extension \"%s\" because a skipped transaction is being stored or removed",
						PAPPLY_NAME),
				 errhint("Try again later.  If it is prepared, it must be committed or rolled back.")));
	if (behavior != DROP_CASCADE && papply_stored_exist())
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop extension \"%s\" because skipped transactions are stored",
						PAPPLY_NAME),
				 errhint("Use %s to remove them, or DROP ... CASCADE.", PAPPLY_NAME ".forget()")));
}

/* Check a statement that may drop the extension. */
static void
check_statement(Node *statement)
{
	Oid			extension = get_extension_oid(PAPPLY_NAME, true);

	if (!OidIsValid(extension) || !papply_compat_is_owner(ExtensionRelationId, extension))
		return;
	if (IsA(statement, DropStmt) && drops_ours((DropStmt *) statement))
		check_drop(((DropStmt *) statement)->behavior);
	if (IsA(statement, DropOwnedStmt) &&
		list_member_oid(roleSpecsToIds(((DropOwnedStmt *) statement)->roles), owner_of(extension)))
		check_drop(((DropOwnedStmt *) statement)->behavior);
}

static void
check_refresh(const RefreshMatViewStmt *refresh)
{
	if (!refresh->skipData ||
		!papply_stored_is_relation(RangeVarGetRelid(refresh->relation, NoLock, true)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("cannot remove the data of \"%s\"", refresh->relation->relname),
			 errdetail("Skipped transactions are stored in it."),
			 errhint("Use %s to remove them.", PAPPLY_NAME ".forget()")));
}

static void
check_utility(PlannedStmt *plan, const char *query, bool is_read_only,
			  ProcessUtilityContext context, ParamListInfo params,
			  QueryEnvironment *environment, DestReceiver *receiver, QueryCompletion *completion)
{
	Node	   *statement = plan->utilityStmt;

	if (IsA(statement, DropStmt) || IsA(statement, DropOwnedStmt))
		check_statement(statement);
	if (IsA(statement, RefreshMatViewStmt))
		check_refresh((RefreshMatViewStmt *) statement);
	if (previous_utility)
		previous_utility(plan, query, is_read_only, context, params, environment, receiver,
						 completion);
	else
		standard_ProcessUtility(plan, query, is_read_only, context, params, environment, receiver,
								completion);
}

static void
remove_stored(Oid subid)
{
	int			removed = papply_stored_remove_all(subid);

	if (removed > 0)
		ereport(NOTICE,
				(errmsg_plural("%d skipped transaction of the subscription is removed, too",
							   "%d skipped transactions of the subscription are removed, too",
							   removed, removed)));
}

static void
remove_stored_at_drop(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, class_id, object_id, sub_id, arg);
	if (access == OAT_DROP && class_id == SubscriptionRelationId)
	{
		/* before rows of it, as everywhere; the server does it next */
		LockSharedObject(SubscriptionRelationId, object_id, 0, AccessExclusiveLock);
		remove_stored(object_id);
		papply_replay_drop_origin(object_id);
	}
}

void
papply_drop_stored_init(void)
{
	previous_object_access = object_access_hook;
	object_access_hook = remove_stored_at_drop;
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = check_utility;
}
