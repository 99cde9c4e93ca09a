/*-------------------------------------------------------------------------
 * remote_relation.c
 *	  Keep what the receiver knows about each relation of the publisher.
 *
 * Runs in the receiver, with or without a pool: RELATION messages are sent
 * only once, so they are kept from the beginning of the connection.
 *
 * The core apply loop has its own map of relations.  It gets a definition only
 * when it is about to get a change made with it (native_version), because it
 * may have to apply a transaction that is older than the newest message.
 *
 * The local part (the unique indexes, how changes may be applied, whether the
 * table is synchronized) is read from the catalogs when it is first needed and
 * after any invalidation.  It matters only for speed, because writers decide
 * for themselves with the table locked, and because the core apply loop's
 * session is examined after a transaction if a table may have changed
 * (receiver.c).  So the receiver does not wait for a table that another
 * process has locked exclusively: it has to keep the connection alive.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "storage/lmgr.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "apply_mode.h"
#include "function_cache.h"
#include "local_schema.h"
#include "lookup.h"
#include "pool.h"
#include "relation_registry.h"
#include "remote_relation.h"

/* A version that was replaced, and the last transaction that may use it. */
typedef struct OldVersion
{
	uint32		version;
	uint64		last_seqno;
} OldVersion;

typedef struct Relations
{
	HTAB	   *hash;
	MemoryContext context;
	List	   *old_versions;
	List	   *unannounced;	/* the core apply loop may have got some since */
	uint32		local_changes;	/* incremented whenever a local part becomes
								 * stale */
	bool		knows_full;		/* has seen one with REPLICA IDENTITY FULL */
	bool		has_warned;		/* that a table has no place in the statistics */
} Relations;

static Relations relations;

static void
forget_local(PapplyRemoteRelation *rel)
{
	rel->is_current = false;
	relations.local_changes++;
}

static void
invalidate_local(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	PapplyRemoteRelation *rel;

	hash_seq_init(&status, relations.hash);
	while ((rel = hash_seq_search(&status)) != NULL)
		if (relid == InvalidOid || rel->local_relid == relid ||
			rel->local_relid == InvalidOid || list_member_oid(rel->partitions, relid))
			forget_local(rel);
}

/*
 * Invalidate after a change that may concern the default or a constraint of a
 * domain, or a function in a default.  Most types and constraints belong to
 * tables, such as temporary ones, so only relations that use such a domain or
 * function are invalidated.
 */
static void
invalidate_domains(Datum arg, int cacheid, uint32 hashvalue)
{
	HASH_SEQ_STATUS status;
	PapplyRemoteRelation *rel;

	hash_seq_init(&status, relations.hash);
	while ((rel = hash_seq_search(&status)) != NULL)
		if (cacheid == TYPEOID ? rel->has_domain_default : rel->may_check_domain)
			forget_local(rel);
}

/*
 * The core apply loop gets all definitions again after a change of any schema,
 * with the present names (core_loop.c).
 */
static void
invalidate_schemas(Datum arg, int cacheid, uint32 hashvalue)
{
	papply_remote_relation_forget_native();
}

/* Invalidate after a change of any table's synchronization state. */
static void
invalidate_all(Datum arg, int cacheid, uint32 hashvalue)
{
	invalidate_local(arg, InvalidOid);
}

void
papply_remote_relation_init(void)
{
	HASHCTL		ctl;

	relations.context = AllocSetContextCreate(TopMemoryContext,
											  "parallel_apply remote relations",
											  ALLOCSET_DEFAULT_SIZES);
	ctl.keysize = sizeof(LogicalRepRelId);
	ctl.entrysize = sizeof(PapplyRemoteRelation);
	ctl.hcxt = relations.context;
	relations.hash = hash_create("parallel_apply remote relations", 128, &ctl,
								 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(invalidate_local, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, invalidate_all, (Datum) 0);
	CacheRegisterSyscacheCallback(NAMESPACEOID, invalidate_schemas, (Datum) 0);
	CacheRegisterSyscacheCallback(PROCOID, invalidate_domains, (Datum) 0);
	CacheRegisterSyscacheCallback(CONSTROID, invalidate_domains, (Datum) 0);
	CacheRegisterSyscacheCallback(TYPEOID, invalidate_domains, (Datum) 0);
}

static void
replace_version(PapplyRemoteRelation *rel, uint64 in_use)
{
	MemoryContext old_context = MemoryContextSwitchTo(relations.context);
	OldVersion *old = palloc(sizeof(OldVersion));

	Assert(relations.old_versions == NIL ||
		   ((OldVersion *) llast(relations.old_versions))->last_seqno <= in_use);
	old->version = rel->version;
	old->last_seqno = in_use;
	relations.old_versions = lappend(relations.old_versions, old);
	MemoryContextSwitchTo(old_context);
}

static bool
is_definition(const PapplyRemoteRelation *rel, const PapplyMessage *message, Oid schema)
{
	return rel->schema == schema && papply_message_is_equal(&rel->message, message);
}

uint32
papply_remote_relation_version(const PapplyMessage *message, Oid schema)
{
	PapplyRemoteRelation *rel = hash_search(relations.hash, &message->id, HASH_FIND, NULL);

	return rel != NULL && is_definition(rel, message, schema) ? rel->version : 0;
}

void
papply_remote_relation_update(const PapplyMessage *message, uint64 in_use)
{
	PapplyRemoteRelation *rel;
	MemoryContext old_context;
	StringInfoData buf;
	Oid			schema = papply_local_schema_of(message->data, message->length);
	bool		found;

	rel = hash_search(relations.hash, &message->id, HASH_ENTER, &found);
	if (found && is_definition(rel, message, schema))
		return;					/* repeated after an invalidation on the
								 * publisher */

	if (!found)
	{
		memset(rel, 0, sizeof(*rel));
		rel->remote_relid = message->id;
	}
	else
	{
		if (rel->version != 0)
			replace_version(rel, in_use);
		MemoryContextDelete(rel->context);
	}

	rel->context = AllocSetContextCreate(relations.context,
										 "parallel_apply remote relation",
										 ALLOCSET_SMALL_SIZES);
	old_context = MemoryContextSwitchTo(rel->context);
	initStringInfo(&buf);
	appendBinaryStringInfo(&buf, message->data, message->length);
	buf.cursor = 1;				/* after the kind byte */
	rel->message = papply_message_read(buf.data, buf.len);
	rel->remote = logicalrep_read_rel(&buf);
	rel->schema = schema;
	relations.knows_full |= rel->remote->replident == REPLICA_IDENTITY_FULL;
	MemoryContextSwitchTo(old_context);

	rel->version = papply_pool ? papply_registry_add(message->data, message->length, schema) : 0;
	rel->is_current = false;
	rel->local_relid = InvalidOid;
	rel->partitions = NIL;
}

/* Map each local column to the published one, or to -1. */
static AttrMap *
map_columns(Relation local, LogicalRepRelation *remote)
{
	TupleDesc	desc = RelationGetDescr(local);
	AttrMap    *map = make_attrmap(desc->natts);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		map->attnums[i] = -1;
		if (att->attisdropped || att->attgenerated)
			continue;
		for (int j = 0; j < remote->natts; j++)
			if (strcmp(remote->attnames[j], NameStr(att->attname)) == 0)
				map->attnums[i] = j;
	}
	return map;
}

/* Remember the partitions, whose changes concern the partitioned table too. */
static void
remember_partitions(PapplyRemoteRelation *rel)
{
	List	   *partitions = find_all_inheritors(rel->local_relid, NoLock, NULL);
	MemoryContext old_context = MemoryContextSwitchTo(rel->context);

	list_free(rel->partitions);
	rel->partitions = list_copy(partitions);
	MemoryContextSwitchTo(old_context);
}

/* Describe the table for the views; warn once if there is no place for it. */
static void
describe_table(PapplyRemoteRelation *rel, const AttrMap *map)
{
	PapplyTableDescription description = {0};

	description.is_known = true;
	description.is_full = rel->remote->replident == REPLICA_IDENTITY_FULL;
	description.natts = map->maplen;
	for (int i = 0; i < Min(map->maplen, PAPPLY_DESCRIBED_COLUMNS); i++)
	{
		if (map->attnums[i] < 0)
			continue;
		papply_table_description_set(description.published, i);
		if (bms_is_member(map->attnums[i], rel->remote->attkeys))
			papply_table_description_set(description.identity, i);
	}
	rel->lacks_place = !papply_table_statistics_describe(MySubscription->oid,
														 rel->local_relid, &description);
	if (!rel->lacks_place || relations.has_warned)
		return;
	relations.has_warned = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("statistics of table \"%s.%s\" and others are not kept",
					rel->remote->nspname, rel->remote->relname),
			 errdetail("There is no place for more tables.")));
}

/* Warn once that another extension keeps the rows of the table elsewhere. */
static void
warn_if_intercepted(PapplyRemoteRelation *rel)
{
	const char *kind;

	if (rel->warned_relid == rel->local_relid ||
		(kind = papply_intercepted_as(rel->local_relid)) == NULL)
		return;
	rel->warned_relid = rel->local_relid;
	ereport(WARNING,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("queries do not find applied rows of table \"%s.%s\"",
					rel->remote->nspname, rel->remote->relname),
			 errdetail("It is %s.", kind),
			 errhint("Subscribe to an ordinary table with an ENABLE ALWAYS trigger "
					 "that writes to this one.")));
}

/*
 * Read the local part from the catalogs; called in a transaction.  If another
 * process has locked the table, its last known apply mode stays.
 */
static void
look_up_local(PapplyRemoteRelation *rel)
{
	Oid			schema = OidIsValid(rel->schema) ? rel->schema :
	get_namespace_oid(rel->remote->nspname, true);
	Oid			relid = get_relname_relid(rel->remote->relname, schema);
	char		state;
	XLogRecPtr	lsn;
	Relation	local;
	AttrMap    *map;
	PapplyApplyModeReason reason;
	bool		is_known;

	Assert(IsTransactionState());
	papply_row_keys_init(&rel->keys, rel->remote);
	is_known = rel->local_relid == relid;
	rel->local_relid = relid;
	rel->is_ready = true;
	rel->is_current = true;
	rel->lacks_place = false;

	/* no such table: an error is raised when the change is applied */
	if (!OidIsValid(relid))
	{
		rel->apply_mode = PAPPLY_TABLE_PARALLEL;
		return;
	}
	state = GetSubscriptionRelState(MySubscription->oid, relid, &lsn);
	rel->is_ready = state == SUBREL_STATE_READY;
	rel->synced_lsn = state == SUBREL_STATE_SYNCDONE ? lsn : InvalidXLogRecPtr;
	if (!ConditionalLockRelationOid(relid, AccessShareLock))
	{
		rel->is_current = false;	/* look it up again at the next change */
		if (!is_known)
			rel->apply_mode = papply_apply_mode_unlocked(relid);
		return;
	}
	local = try_relation_open(relid, NoLock);
	if (local == NULL)
		return;
	map = map_columns(local, rel->remote);
	if (local->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		remember_partitions(rel);
	describe_table(rel, map);
	warn_if_intercepted(rel);
	rel->may_check_domain = papply_table_may_check_domain(local, map);
	rel->has_domain_default = papply_table_has_domain_default(local, map);
	rel->apply_mode = papply_apply_mode(local, map, &reason);
	rel->has_user_code = papply_table_has_triggers(local) ||
		papply_function_cache_of(local, map, CurrentMemoryContext).has_user_code;
	if (rel->apply_mode != PAPPLY_TABLE_NATIVE)
		papply_row_keys_add_unique(&rel->keys, local, map->attnums);
	relation_close(local, AccessShareLock);
}

PapplyRemoteRelation *
papply_remote_relation_get(LogicalRepRelId remote_relid, bool want_local)
{
	PapplyRemoteRelation *rel = hash_search(relations.hash, &remote_relid, HASH_FIND, NULL);

	if (rel != NULL && want_local &&
		unlikely(!rel->is_current ||
				 (rel->lacks_place && papply_table_statistics_may_have_place())))
	{
		PapplyLookup lookup = papply_lookup_begin();	/* or the core apply
														 * loop's transaction */

		look_up_local(rel);
		papply_lookup_end(lookup);
	}
	return rel;
}

bool
papply_remote_relation_knows_full(void)
{
	return relations.knows_full;
}

uint32
papply_remote_relation_local_changes(void)
{
	AcceptInvalidationMessages();
	return relations.local_changes;
}

/*
 * The core apply loop's definitions are not known here.  It has forgotten
 * those of a stream that was rolled back, and it looks up again whether a
 * table is synchronized when it gets a definition.
 */
void
papply_remote_relation_pool_started(void)
{
	HASH_SEQ_STATUS status;
	PapplyRemoteRelation *rel;

	hash_seq_init(&status, relations.hash);
	while ((rel = hash_seq_search(&status)) != NULL)
	{
		rel->version = papply_registry_add_at_start(rel->message.data, rel->message.length,
													rel->schema);
		rel->native_version = 0;
	}
}

void
papply_remote_relation_pool_stopped(void)
{
	HASH_SEQ_STATUS status;
	PapplyRemoteRelation *rel;

	hash_seq_init(&status, relations.hash);
	while ((rel = hash_seq_search(&status)) != NULL)
		rel->version = rel->native_version = 0;
	list_free_deep(relations.old_versions);
	relations.old_versions = NIL;
}

void
papply_remote_relation_clean(uint64 committed)
{
	while (relations.old_versions != NIL)
	{
		OldVersion *old = linitial(relations.old_versions);

		if (old->last_seqno > committed)
			return;
		papply_registry_drop(old->version);
		pfree(old);
		relations.old_versions = list_delete_first(relations.old_versions);
	}
}

void
papply_remote_relation_forget_native(void)
{
	HASH_SEQ_STATUS status;
	PapplyRemoteRelation *rel;

	hash_seq_init(&status, relations.hash);
	while ((rel = hash_seq_search(&status)) != NULL)
		rel->native_version = 0;
}

static void
find_unannounced(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(relations.context);
	HASH_SEQ_STATUS status;
	PapplyRemoteRelation *rel;

	hash_seq_init(&status, relations.hash);
	while ((rel = hash_seq_search(&status)) != NULL)
		if (rel->native_version != rel->version)
			relations.unannounced = lappend(relations.unannounced, rel);
	MemoryContextSwitchTo(old_context);
}

/*
 * The caller sends one relation after the other, so search for more only when
 * those found have been sent.
 */
PapplyRemoteRelation *
papply_remote_relation_next_unannounced(void)
{
	for (;;)
	{
		PapplyRemoteRelation *rel;

		if (relations.unannounced == NIL)
			find_unannounced();
		if (relations.unannounced == NIL)
			return NULL;
		rel = llast(relations.unannounced);
		if (rel->native_version != rel->version)
			return rel;
		relations.unannounced = list_delete_last(relations.unannounced);
	}
}
