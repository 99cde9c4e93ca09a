/*-------------------------------------------------------------------------
 * drop_extension.c
 *	  What DROP EXTENSION and DROP SUBSCRIPTION remove in addition to their
 *	  objects.
 *
 * Runs in a user's backend.
 *
 * Options of subscriptions and tables are security labels, which do not depend
 * on the extension.  They are removed with it, so that nothing of it is dumped
 * later, and so that a pause does not come back with the next CREATE
 * EXTENSION.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/objectaccess.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"

#include "modules.h"
#include "subscription_options.h"
#include "table_options.h"

static object_access_hook_type previous_object_access = NULL;

/* pg_upgrade creates and drops the extension before there are labels. */
static void
remove_options(void)
{
	int			subscriptions = papply_subscription_options_remove_all();
	int			tables = papply_table_options_remove_all();

	if (subscriptions > 0)
		ereport(NOTICE,
				(errmsg_plural("configuration of %d subscription is removed",
							   "configuration of %d subscriptions is removed",
							   subscriptions, subscriptions)));
	if (tables > 0)
		ereport(NOTICE,
				(errmsg_plural("options of %d table are removed",
							   "options of %d tables are removed",
							   tables, tables)));
}

static void
remove_options_at_drop(ObjectAccessType access, Oid class_id, Oid object_id, int sub_id, void *arg)
{
	if (previous_object_access)
		previous_object_access(access, class_id, object_id, sub_id, arg);
	if (access != OAT_DROP)
		return;
	if (class_id == SubscriptionRelationId)
		papply_subscription_options_remove(object_id);
	if (class_id == ExtensionRelationId && object_id == get_extension_oid(PAPPLY_NAME, true))
		remove_options();
}

void
papply_drop_extension_init(void)
{
	previous_object_access = object_access_hook;
	object_access_hook = remove_options_at_drop;
}
