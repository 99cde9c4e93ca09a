/*-------------------------------------------------------------------------
 * session_state.c
 *	  What user code leaves in its session for later transactions.
 *
 * Runs in the receiver and in writers.
 *
 * PostgreSQL's own apply has only one session, so user code can find what that
 * of an earlier transaction has left there.  Each writer has a session of its
 * own.
 *
 * So a writer that finds such a thing at the end of a transaction rolls back,
 * and leaves the transaction to the core apply loop.  From then on, until the
 * apply worker ends, all transactions that run user code are left to it, so
 * that only the receiver's session runs user code:  it is not known which code
 * takes, finds or releases what.  They are never applied together with others
 * anyway.  What the code does outside of its transaction, such as calling
 * nextval(), is repeated only for the transactions that were being applied
 * when this began.
 *
 * Advisory locks: pg_advisory_lock() in a trigger takes a lock for the session,
 * which keeps the lock against all others and can take it again itself.  The
 * writer that keeps it would block the next one, and has no transaction to
 * roll back.  A writer that waits for a lock of the receiver's session has to
 * roll back (blockers.c) until its transaction is left to the core apply loop.
 * This guarantees progress.  A transaction that fails would end PostgreSQL's
 * own apply worker and release its locks.  So a writer releases all of them
 * when it rolls back.
 *
 * Settings and temporary tables: a trigger can set a variable for the session
 * instead of its transaction, by set_config() or SET.  A setting also affects
 * transactions that run no user code: the server's own functions read it in
 * defaults and when they convert values, and the role decides which tables may
 * be changed.  So as long as the receiver's session has such a setting, or a
 * temporary schema, all transactions are left to the core apply loop.  A
 * temporary table with ON COMMIT DROP leaves only the schema.  Its transaction
 * is left to the core apply loop as well, because only the server knows which
 * tables are of this kind.  replication_role.c handles
 * session_replication_role.  The alternative, copying settings from session to
 * session, would have to support variables of every kind, and does not exist
 * for temporary tables.
 *
 * Sequences: a session remembers the last number that it got, for currval()
 * and lastval(), and, if the sequence has a cache, the numbers that it has
 * fetched and not used.  The last number belongs to one of several sessions
 * here, so a trigger of a later transaction could find that of any earlier
 * transaction.  So sessions forget it at the end of each transaction.
 * currval() then works within a transaction, and otherwise fails, as it does
 * with PostgreSQL's own apply after a restart of its worker.  Only one session
 * may use a cache, and that is the receiver's, which then forgets nothing.  A
 * writer that has used one loses the numbers that it has fetched, as any
 * session does at its end.  Forgetting without a core apply loop would also
 * keep the order, but it would use up a whole cache with each transaction,
 * until an int column overflows.
 *
 * Locking: is_single is only ever set.  A writer that reads an older
 * value finds what its own transaction has left.  The receiver alone writes
 * has_settings, before it commits anything more.  A writer reads it in
 * its turn (session.c).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_sequence.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "pool.h"
#include "session_state.h"

/* The receiver has reported that it keeps such a thing. */
typedef struct Reported
{
	bool		lock;
	bool		setting;
} Reported;

static Reported reported;

static bool was_single = false; /* receiver: in its last pool */

/*
 * From now on, until the apply worker ends, only the receiver may run user code.
 * Returns whether that is new in this pool.
 */
static bool
begin_single_session(void)
{
	return pg_atomic_exchange_u32(&papply_pool->session.is_single, true) == 0;
}

bool
papply_single_session_is_on(void)
{
	return pg_atomic_read_u32(&papply_pool->session.is_single) != 0;
}

void
papply_single_session_check(void)
{
	if (papply_single_session_is_on())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("user code is left to the apply worker")));
}

/*** advisory locks ***/

/*
 * Return the advisory locks of this process, both of its session and its
 * transaction, as a list of LOCKTAG.  No other process adds or removes one, so
 * an empty partition need not be locked.
 */
static List *
find_advisory_locks(void)
{
	List	   *found = NIL;

	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		PROCLOCK   *held = NULL;

		if (papply_compat_next_proclock(MyProc, i, NULL) == NULL)
			continue;
		LWLockAcquire(LockHashPartitionLockByIndex(i), LW_SHARED);
		while ((held = papply_compat_next_proclock(MyProc, i, held)) != NULL)
		{
			LOCKTAG    *tag;

			if (held->tag.myLock->tag.locktag_lockmethodid != USER_LOCKMETHOD)
				continue;
			tag = palloc(sizeof(LOCKTAG));
			*tag = held->tag.myLock->tag;
			found = lappend(found, tag);
		}
		LWLockRelease(LockHashPartitionLockByIndex(i));
	}
	return found;
}

/* Outside of a transaction, all remaining locks belong to the session. */
static bool
session_has_locks(void)
{
	List	   *found = find_advisory_locks();
	bool		has_some = found != NIL;

	Assert(!IsTransactionState());
	list_free_deep(found);
	return has_some;
}

void
papply_session_locks_note(void)
{
	if (IsTransactionState() || reported.lock || !session_has_locks())
		return;
	(void) begin_single_session();
	reported.lock = true;
	ereport(LOG,
			(errmsg("apply worker of subscription \"%s\" keeps an advisory lock",
					MySubscription->name),
			 errdetail("Transactions that run user code are applied by PostgreSQL's own apply until it starts again.")));
}

static void
hide_warning(ErrorData *error)
{
	error->output_to_server = false;
}

/*
 * Release a lock if the session holds it, in either mode of advisory locks, and
 * return whether it did.  There is no other way to find out.  If the lock
 * belongs to the transaction, or is held in the other mode, the server issues a
 * WARNING, which is hidden.  LockRelease() throws no error here, so the hook is
 * always restored.
 */
static bool
release_from_session(const LOCKTAG *tag)
{
	emit_log_hook_type previous_hook = emit_log_hook;
	bool		is_released;

	emit_log_hook = hide_warning;
	is_released = LockRelease(tag, ExclusiveLock, true) || LockRelease(tag, ShareLock, true);
	emit_log_hook = previous_hook;
	return is_released;
}

/* Release such locks of this transaction, which leave it to the receiver. */
static void
check_locks(void)
{
	ListCell   *lc;

	Assert(IsTransactionState());
	foreach(lc, find_advisory_locks())
	{
		if (release_from_session(lfirst(lc)))
			(void) begin_single_session();
	}
	papply_single_session_check();
}

/*** settings and temporary tables ***/

/*
 * Return whether the setting belongs to the session, or will after the commit.
 * If the transaction has changed it, the newest stack entry shows this.
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

void
papply_session_settings_note(void)
{
	bool		has_some;

	Assert(papply_pool_waiter == PAPPLY_WAITER_RECEIVER);
	if (IsTransactionState())
		return;
	has_some = has_temporary_schema() || has_settings();
	pg_atomic_write_u32(&papply_pool->session.has_settings, has_some);
	if (!has_some || reported.setting)
		return;
	(void) begin_single_session();
	reported.setting = true;
	ereport(LOG,
			(errmsg("apply worker of subscription \"%s\" keeps a setting or a temporary table",
					MySubscription->name),
			 errdetail("All transactions are applied by PostgreSQL's own apply as long as it does so, "
					   "and those that run user code until it starts again.")));
}

bool
papply_session_settings_exist(void)
{
	return pg_atomic_read_u32(&papply_pool->session.has_settings) != 0;
}

static void
check_settings(void)
{
	Assert(IsTransactionState());
	if ((MyXactFlags & XACT_FLAGS_ACCESSEDTEMPNAMESPACE) != 0 || has_settings())
		(void) begin_single_session();
	papply_single_session_check();
}

/*** sequences ***/

/* The sequences of this database that have a cache. */
typedef struct CachedSequences
{
	List	   *oids;
	uint32		invalidations;	/* counts them */
	uint32		found_at;		/* value of the counter when the sequences
								 * were looked up */
	bool		has_callback;
} CachedSequences;

static CachedSequences cached = {.invalidations = 1};

static void
invalidate(Datum arg, int cacheid, uint32 hashvalue)
{
	cached.invalidations++;
}

static void
find_cached_sequences(void)
{
	uint32		counted = cached.invalidations;
	Relation	catalog;
	SysScanDesc scan;
	HeapTuple	tuple;

	Assert(IsTransactionState());
	if (!cached.has_callback)
		CacheRegisterSyscacheCallback(SEQRELID, invalidate, (Datum) 0);
	cached.has_callback = true;
	list_free(cached.oids);
	cached.oids = NIL;
	catalog = table_open(SequenceRelationId, AccessShareLock);
	scan = systable_beginscan(catalog, InvalidOid, false, NULL, 0, NULL);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_sequence form = (Form_pg_sequence) GETSTRUCT(tuple);
		MemoryContext old_context;

		if (form->seqcache <= 1)
			continue;
		old_context = MemoryContextSwitchTo(TopMemoryContext);
		cached.oids = lappend_oid(cached.oids, form->seqrelid);
		MemoryContextSwitchTo(old_context);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	cached.found_at = counted;
}

/*
 * Has this transaction used the sequence?  If so, it has a RowExclusiveLock
 * until its end.  TRUNCATE ... RESTART IDENTITY takes a stronger lock before.
 */
static bool
is_used(Oid sequence)
{
	LOCKTAG		tag;

	SET_LOCKTAG_RELATION(tag, MyDatabaseId, sequence);
	return papply_compat_holds_lock(&tag, RowExclusiveLock) &&
		!papply_compat_holds_lock(&tag, AccessExclusiveLock);
}

void
papply_session_sequences_forget(void)
{
	if (!papply_single_session_is_on())
		ResetSequenceCaches();
}

/* Report this once in the life of a pool. */
static void
leave_to_receiver(Oid sequence)
{
	if (begin_single_session())
		ereport(LOG,
				(errmsg("a trigger or column default of subscription \"%s\" uses sequence \"%s\", which has a cache",
						MySubscription->name, get_rel_name(sequence)),
				 errdetail("Transactions that run user code are applied by PostgreSQL's own apply until its apply worker starts again."),
				 errhint("Execute ALTER SEQUENCE with CACHE 1, and disable and enable the subscription.")));
}

void
papply_session_sequences_note(void)
{
	ListCell   *lc;

	if (cached.found_at != cached.invalidations)
		find_cached_sequences();
	foreach(lc, cached.oids)
	{
		if (is_used(lfirst_oid(lc)))
			leave_to_receiver(lfirst_oid(lc));
	}
}

static void
check_sequences(void)
{
	papply_session_sequences_note();
	papply_single_session_check();
}

/*** all of them ***/

void
papply_session_state_carry_over(void)
{
	was_single = papply_single_session_is_on();
}

void
papply_session_state_resume(void)
{
	if (was_single)
		(void) begin_single_session();
	papply_session_locks_note();
	papply_session_settings_note();
}

void
papply_session_state_check_end(void)
{
	check_settings();
	check_sequences();
	check_locks();
}

void
papply_session_state_abort(void)
{
	papply_session_sequences_forget();
	LockReleaseSession(USER_LOCKMETHOD);
}
