/*-------------------------------------------------------------------------
 * session.c
 *	  The identity of a writer in its database, and its subscription.
 *
 * Runs in a writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "postmaster/bgworker.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "account.h"
#include "pool.h"
#include "replication_role.h"
#include "session.h"
#include "session_state.h"

/* MySubscription, as it was read. */
typedef struct Loaded
{
	uint32		invalidations;	/* counts those that may concern it, including
								 * those of other subscriptions */
	uint32		read_at;		/* value of the counter when it was read */
	TransactionId row_xmin;		/* of its row in pg_subscription; invalid:
								 * there was none */
	MemoryContext context;
} Loaded;

static Loaded loaded = {.invalidations = 1};

static void
invalidate_subscription(Datum arg, int cacheid, uint32 hashvalue)
{
	loaded.invalidations++;
}

void
papply_session_connect(void)
{
	/* also among the receiver's settings, which a replay does not have */
	SetConfigOption("session_replication_role", "replica", PGC_SUSET, PGC_S_OVERRIDE);
	BackgroundWorkerInitializeConnectionByOid(papply_pool->dbid, papply_pool->userid, 0);
	SetConfigOption("search_path", "", PGC_SUSET, PGC_S_OVERRIDE);
	papply_first_settings_take();

	papply_account_show_name();

	/* the receiver flushes, once for many commits */
	SetConfigOption("synchronous_commit", "off", PGC_SUSET, PGC_S_OVERRIDE);

	/*
	 * A transaction that is applied in progress is open as long as on the
	 * publisher.  The setting exists from 17 on.
	 */
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_OVERRIDE);

	loaded.context = AllocSetContextCreate(TopMemoryContext, "parallel_apply subscription",
										   ALLOCSET_SMALL_SIZES);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONOID, invalidate_subscription, (Datum) 0);
}

/* Return the xmin of the row of the subscription, or an invalid one if there is none. */
static TransactionId
get_row_xmin(void)
{
	HeapTuple	tuple = SearchSysCache1(SUBSCRIPTIONOID, ObjectIdGetDatum(papply_pool->subid));
	TransactionId xmin;

	if (!HeapTupleIsValid(tuple))
		return InvalidTransactionId;
	xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
	ReleaseSysCache(tuple);
	return xmin;
}

/* Options such as run_as_owner may change. */
bool
papply_session_load_subscription(void)
{
	uint32		counted = loaded.invalidations;

	if (loaded.read_at == counted)
		return MySubscription != NULL;
	MySubscription = NULL;
	MemoryContextReset(loaded.context);
	StartTransactionCommand();
	loaded.row_xmin = get_row_xmin();	/* not newer than what is read next */
	MemoryContextSwitchTo(loaded.context);
	MySubscription = GetSubscription(papply_pool->subid, true);
	CommitTransactionCommand();
	MemoryContextSwitchTo(TopMemoryContext);
	loaded.read_at = counted;
	return MySubscription != NULL;
}

/*
 * Transactions are left to the core apply loop if it must do something at
 * their beginning: skip one, exit because the subscription is disabled, or
 * exit to be restarted with the new owner.
 */
bool
papply_session_suits_writers(void)
{
	return MySubscription->skiplsn == InvalidXLogRecPtr && MySubscription->enabled &&
		MySubscription->owner == papply_pool->userid && papply_role_suits_writers() &&
		!papply_session_settings_exist();
}

bool
papply_session_is_current(void)
{
	uint32		counted = loaded.invalidations;

	if (!papply_role_suits_writers() || papply_session_settings_exist())
		return false;
	if (loaded.read_at == counted)
		return true;
	if (!IsTransactionState() || get_row_xmin() != loaded.row_xmin)
		return false;
	loaded.read_at = counted;
	return true;
}
