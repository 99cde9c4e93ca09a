/*-------------------------------------------------------------------------
 * session.c
 *	  Who a writer is in its database, and what its subscription says.
 *
 * Runs in a writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "postmaster/bgworker.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "pool.h"
#include "session.h"

static bool subscription_is_current = false;

static void
set_setting(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

static void
invalidate_subscription(Datum arg, int cacheid, uint32 hashvalue)
{
	subscription_is_current = false;
}

void
papply_session_connect(void)
{
	set_setting("session_replication_role", "replica");
	BackgroundWorkerInitializeConnectionByOid(papply_pool->dbid, papply_pool->userid, 0);
	set_setting("search_path", "");
	set_setting("application_name", MyBgworkerEntry->bgw_name);

	/* the receiver flushes, once for many */
	set_setting("synchronous_commit", "off");

	/* what is applied early is open as long as the publisher's; 17 and later */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		set_setting("transaction_timeout", "0");

	CacheRegisterSyscacheCallback(SUBSCRIPTIONOID, invalidate_subscription, (Datum) 0);
}

/* Options such as run_as_owner may change. */
bool
papply_session_load_subscription(void)
{
	static MemoryContext context = NULL;

	if (subscription_is_current)
		return MySubscription != NULL;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "parallel_apply subscription",
										ALLOCSET_SMALL_SIZES);
	MySubscription = NULL;
	MemoryContextReset(context);
	subscription_is_current = true;
	StartTransactionCommand();
	MemoryContextSwitchTo(context);
	MySubscription = GetSubscription(papply_pool->subid, true);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);
	return MySubscription != NULL;
}

bool
papply_session_is_current(void)
{
	return subscription_is_current;
}
