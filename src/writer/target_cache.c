/*-------------------------------------------------------------------------
 * target_cache.c
 *	  What writers keep of tables, and when it is no longer valid.
 *
 * Runs in a writer.
 *
 * The relation cache reports when a table or a composite type has changed.  The
 * catalog caches report when another type, a function, a role or a text search
 * configuration has, or any object whose name a value may have.  Only tables
 * are locked while they are changed.  If something that a range of transactions has
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
	uint32		schema_changes; /* counts changes of schemas */
	uint32		definition_changes; /* counts changes of functions and types,
									 * or of rights to call functions */
} Cache;

static Cache cache = {.state_counter = 1};

/* The range of transactions. */
typedef struct TargetRange
{
	uint32		number;
	uint32		state_counter;	/* its tables are known to be READY for this
								 * value */
	bool		has_old_definitions;	/* it may have used a function or type
										 * that has changed */
	bool		is_batch;
} TargetRange;

static TargetRange target_range;

/*
 * Note that functions or types of the target have changed since it was
 * prepared.  This range may have used them.
 */
static void
forget_definitions(PapplyTarget *target)
{
	target->state = PAPPLY_TARGET_STALE;
	cache.definition_changes++;
	if (target->range_number == target_range.number)
		target_range.has_old_definitions = true;
}

/* A table or a composite type has changed. */
static void
invalidate_relation(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
		if (list_member_oid(target->functions.composites, relid))
			forget_definitions(target);
		else if (relid == InvalidOid || target->local_relid == relid)
			target->state = PAPPLY_TARGET_STALE;
}

static void
invalidate_definitions(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
		if (papply_function_cache_concerns(&target->functions, cacheid, hashvalue))
			forget_definitions(target);
}

static void
invalidate_schemas(Datum arg, int cacheid, uint32 hashvalue)
{
	cache.schema_changes++;
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
	CacheRegisterRelcacheCallback(invalidate_relation, (Datum) 0);
	papply_function_cache_watch(invalidate_definitions);
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate_schemas, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, invalidate_states, (Datum) 0);
}

void
papply_target_begin_range(bool is_batch)
{
	target_range.number++;
	target_range.is_batch = is_batch;
	target_range.state_counter = cache.state_counter;
	target_range.has_old_definitions = false;
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

	if (target_range.has_old_definitions)
		return false;
	if (target_range.state_counter == counter)
		return true;
	hash_seq_init(&status, cache.targets);
	while ((target = hash_seq_search(&status)) != NULL)
	{
		if (target->range_number != target_range.number || OidIsValid(target->key.partition) ||
			is_ready(target))
			continue;
		hash_seq_term(&status);
		return false;
	}
	target_range.state_counter = counter;
	return true;
}

uint32
papply_target_cache_schema_changes(void)
{
	return cache.schema_changes;
}

bool
papply_target_cache_in_batch(void)
{
	return target_range.is_batch;
}

uint32
papply_target_cache_definition_changes(void)
{
	return cache.definition_changes;
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
	target->range_number = target_range.number;
}

/*
 * Forget what is kept of a target, which must not be open.  If the range has used it, it is
 * not known any more whether its functions and types will have changed until the turn.
 */
static void
forget_target(PapplyTarget *target)
{
	Assert(!target->is_open);
	target_range.has_old_definitions |= target->range_number == target_range.number;
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
