/*-------------------------------------------------------------------------
 * session_sequences.c
 *	  What a session remembers of sequences that user code uses.
 *
 * Runs in the receiver and in writers.
 *
 * A session remembers two things of a sequence: the last number that it got,
 * for currval() and lastval(), and, if the sequence has a cache, the numbers
 * that it has fetched and not used.  PostgreSQL's own apply has only one
 * session, so that a trigger finds the number that another trigger got in an
 * earlier transaction, and gets numbers in the order of the transactions.
 *
 * The last number belongs to one of several sessions here, so a trigger of a
 * later transaction could find that of any earlier transaction.  So sessions
 * forget it at the end of each transaction.  currval() then works within a
 * transaction, and otherwise fails, as it does with PostgreSQL's own apply
 * after a restart of its worker.
 *
 * Only one session may use a cache, and that is the receiver's
 * (single_session.c), which then forgets nothing.  A writer that has used one
 * loses the numbers that it has fetched, as any session does at its end.
 *
 * Forgetting without a core apply loop would also keep the order.  But it
 * would use up a whole cache with each transaction, until an int column
 * overflows.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_sequence.h"
#include "commands/sequence.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "pool.h"
#include "session_sequences.h"
#include "single_session.h"

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

/*** any process ***/

void
papply_session_sequences_forget(void)
{
	if (!papply_single_session_is_on())
		ResetSequenceCaches();
}

/*** writers ***/

/* Report this once in the life of a pool. */
static void
leave_to_receiver(Oid sequence)
{
	if (papply_single_session_begin())
		ereport(LOG,
				(errmsg("a trigger or column default of subscription \"%s\" uses sequence \"%s\", which has a cache",
						MySubscription->name, get_rel_name(sequence)),
				 errdetail("Transactions that run user code are applied by PostgreSQL's own apply until its apply worker starts again."),
				 errhint("Execute ALTER SEQUENCE with CACHE 1, and disable and enable the subscription.")));
	papply_single_session_check();
}

void
papply_session_sequences_check_end(void)
{
	ListCell   *lc;

	if (cached.found_at != cached.invalidations)
		find_cached_sequences();
	foreach(lc, cached.oids)
		if (is_used(lfirst_oid(lc)))
		leave_to_receiver(lfirst_oid(lc));
}
