/*-------------------------------------------------------------------------
 * drop_extension.c
 *	  Prevent DROP EXTENSION from silently removing stored transactions.
 *
 * Runs in a user's backend.
 *
 * Stored transactions exist nowhere else, and the publisher does not send them
 * again.  Their relations belong to the extension, so the server would drop
 * them with it.  CASCADE is required for that, as for objects that depend on
 * the extension.  A transaction that is still to be skipped and stored would
 * later be lost by the server's own skip, so the skip must be withdrawn first.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "nodes/parsenodes.h"
#include "nodes/value.h"
#include "tcop/utility.h"

#include "drop_extension.h"
#include "kept.h"

static ProcessUtility_hook_type previous_utility = NULL;

static bool
drops_ours(const Node *statement)
{
	const DropStmt *drop = (const DropStmt *) statement;
	ListCell   *cell;

	if (!IsA(statement, DropStmt) || drop->removeType != OBJECT_EXTENSION)
		return false;
	foreach(cell, drop->objects)
		if (strcmp(strVal(lfirst(cell)), PAPPLY_NAME) == 0)
		return true;
	return false;
}

static void
check_drop(DropBehavior behavior)
{
	if (papply_kept_are_pending())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot drop extension \"%s\" because a transaction is to be skipped and stored",
						PAPPLY_NAME),
				 errhint("Use ALTER SUBSCRIPTION ... SKIP (lsn = NONE), or wait until it is skipped.")));
	if (behavior != DROP_CASCADE && papply_kept_exist())
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop extension \"%s\" because skipped transactions are stored",
						PAPPLY_NAME),
				 errhint("Use %s to remove them, or DROP ... CASCADE.", PAPPLY_NAME ".forget()")));
}

static void
check_utility(PlannedStmt *plan, const char *query, bool is_read_only,
			  ProcessUtilityContext context, ParamListInfo params,
			  QueryEnvironment *environment, DestReceiver *receiver, QueryCompletion *completion)
{
	if (drops_ours(plan->utilityStmt))
		check_drop(((const DropStmt *) plan->utilityStmt)->behavior);
	if (previous_utility)
		previous_utility(plan, query, is_read_only, context, params, environment, receiver,
						 completion);
	else
		standard_ProcessUtility(plan, query, is_read_only, context, params, environment, receiver,
								completion);
}

void
papply_drop_extension_init(void)
{
	previous_utility = ProcessUtility_hook;
	ProcessUtility_hook = check_utility;
}
