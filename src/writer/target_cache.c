/*-------------------------------------------------------------------------
 * target_cache.c
 *	  What writers keep of tables, and when it is no longer valid.
 *
 * Runs in a writer.
 *
 * The relation cache reports when a table has changed.  The catalog caches
 * report when a domain, a function or a role has, none of which is locked
 * while a table is changed.  If something that a range of transactions has
 * used before its turn has changed since, the range is applied again.  Once
 * the command that changed it has returned, no row of a later transaction may
 * be made with the former definition.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_subscription_rel.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "target.h"
#include "target_cache.h"

/* If there are this many partitions, those that are not open are dropped. */
#define MAX_PARTITIONS 2048

/* The targets, and what has been invalidated. */
typedef struct Cache
{
	HTAB	   *targets;
	int			npartitions;
	MemoryContext context;
	uint32		state_counter;	/* counts changes of pg_subscription_rel,
								 * including those of other subscriptions */
	uint32		function_changes;	/* counts changes of functions, or of the
									 * rights to call them */
} Cache;

static Cache cache = {.state_counter = 1};

/* The range of transactions. */
typedef struct Range
{
	uint32		number;
	uint32		state_counter;	/* its tables are known to be READY for this
								 * value */
	bool		has_old_functions;	/* it may have used one that has changed */
} Range;

static Range range;

static void
invalidate_target(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
		if (relid == InvalidOid || target->local_relid == relid)
			target->state = PAPPLY_TARGET_STALE;
}

/*
 * Note that functions of the target have changed since it was prepared.  This
 * range may have used them.
 */
static void
forget_functions(PapplyTarget *target)
{
	target->state = PAPPLY_TARGET_STALE;
	cache.function_changes++;
	if (target->range_number == range.number)
		range.has_old_functions = true;
}

/*
 * Functions have changed or, if this is another cache than theirs, roles, so
 * the user may have gained or lost the right to call one.
 */
static void
invalidate_functions(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
		if (cacheid == PROCOID ? papply_kept_functions_concerns(&target->functions, hashvalue) :
			target->functions.has_any || target->functions.is_restricted)
			forget_functions(target);
}

/*
 * The default or a constraint of a domain may have changed.  Most changes of
 * types and constraints belong to tables, for example temporary ones, and the
 * relation cache reports these, so only targets that use domains are
 * concerned.
 */
static void
invalidate_domains(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
		if (cacheid == TYPEOID ? target->has_domain_default : target->may_check_domain)
			target->state = PAPPLY_TARGET_STALE;
}

static void
invalidate_states(Datum arg, int cacheid, uint32 hashvalue)
{
	cache.state_counter++;
}

void
papply_target_init(void)
{
	HASHCTL		ctl;

	cache.context = AllocSetContextCreate(TopMemoryContext, "parallel_apply targets",
										  ALLOCSET_DEFAULT_SIZES);
	ctl.keysize = sizeof(PapplyTargetKey);
	ctl.entrysize = sizeof(PapplyTarget);
	ctl.hcxt = cache.context;
	cache.targets = hash_create("parallel_apply targets", 128, &ctl,
								HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(invalidate_target, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, invalidate_functions, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, invalidate_functions, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, invalidate_functions, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, invalidate_functions, (Datum) 0);	/* as in rights.c */
	CacheRegisterSyscacheCallback(CONSTROID, invalidate_domains, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, invalidate_domains, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, invalidate_states, (Datum) 0);
}

void
papply_target_begin_range(void)
{
	range.number++;
	range.state_counter = cache.state_counter;
	range.has_old_functions = false;
}

static bool
is_ready(PapplyTarget *target)
{
	XLogRecPtr	lsn;

	return GetSubscriptionRelState(MySubscription->oid, target->entry->localreloid, &lsn) ==
		SUBREL_STATE_READY;
}

bool
papply_target_range_is_current(void)
{
	uint32		counter = cache.state_counter;
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	if (range.has_old_functions)
		return false;
	if (range.state_counter == counter)
		return true;
	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
	{
		if (target->range_number != range.number || OidIsValid(target->key.partition) ||
			is_ready(target))
			continue;
		hash_seq_term(&status);
		return false;
	}
	range.state_counter = counter;
	return true;
}

uint32
papply_target_cache_function_changes(void)
{
	return cache.function_changes;
}

MemoryContext
papply_target_cache_context(void)
{
	return cache.context;
}

void
papply_target_cache_use(PapplyTarget *target)
{
	/* A state that was read before pg_subscription_rel changed is stale. */
	if (target->entry != NULL && target->state_counter != cache.state_counter)
		target->entry->state = SUBREL_STATE_UNKNOWN;
	target->state_counter = cache.state_counter;
	target->range_number = range.number;
}

/* Forget what is kept of a target, which must not be open. */
static void
forget_target(PapplyTarget *target)
{
	if (target->context != NULL)
		MemoryContextDelete(target->context);
	target->context = NULL;
	memset(&target->functions, 0, sizeof(target->functions));
	target->run_rows = NULL;
}

static void
drop_partition(PapplyTarget *target)
{
	forget_target(target);
	hash_search(cache.targets, &target->key, HASH_REMOVE, NULL);
	cache.npartitions--;
}

static void
drop_closed_partitions(void)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
		if (OidIsValid(target->key.partition) && !target->is_open)
			drop_partition(target);
}

PapplyTarget *
papply_target_cache_get(LogicalRepRelId remote_relid, Oid partition)
{
	PapplyTargetKey key = {remote_relid, partition};
	PapplyTarget *target = hash_search(cache.targets, &key, HASH_FIND, NULL);

	if (target != NULL)
		return target;
	if (OidIsValid(partition))
	{
		if (cache.npartitions >= MAX_PARTITIONS)
			drop_closed_partitions();
		cache.npartitions++;
	}
	target = hash_search(cache.targets, &key, HASH_ENTER, NULL);
	memset(target, 0, sizeof(*target));
	target->key = key;
	return target;
}

PapplyTarget *
papply_target_cache_find(LogicalRepRelId remote_relid)
{
	PapplyTargetKey key = {remote_relid, InvalidOid};

	return hash_search(cache.targets, &key, HASH_FIND, NULL);
}

void
papply_target_cache_forget_partitions(PapplyTarget *root)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
	{
		bool		is_partition = target->key.remote_relid == root->key.remote_relid &&
		target != root;

		if (target->is_open || (target->state == PAPPLY_TARGET_READY && !is_partition))
			continue;
		if (is_partition)
			drop_partition(target);
		else
			forget_target(target);
	}
}
