/*-------------------------------------------------------------------------
 * target.c
 *	  The local table that changes of a remote relation are applied to.
 *
 * Runs in a writer.
 *
 * The core apply loop opens the table, its indexes and an executor state for
 * every row.  Here they live as long as the local transaction.  What needs no
 * lock (column map, input functions, defaults, scan keys) is kept until the
 * relation cache reports that the table has changed.  While the table is open,
 * its lock keeps all of this valid.
 *
 * If a change may run user code, however, the table is open only for this
 * change and no other table is open, as in the core apply loop.  The code may
 * alter or truncate any other table, and triggers are set up for the change at
 * hand.
 *
 * The map from remote to local relation, with its checks and messages, is the
 * server's own (logicalrelation.h).  It is filled from the registry: the
 * version that a change was made with is put into the map before the table is
 * opened.
 *
 * The partitions of a partitioned table are targets as well.  They are opened
 * when a row belongs to them (partition.c), and dropped when the root has
 * changed.  Some hundred are open at a time, and some thousand kept.  A load
 * that changes rows in all partitions of a large table would not benefit from
 * more.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/tableam.h"
#include "catalog/pg_subscription_rel.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "account.h"
#include "apply_mode.h"
#include "column_values.h"
#include "exclusive.h"
#include "insert_run.h"
#include "local_schema.h"
#include "lookup_index.h"
#include "relation_registry.h"
#include "replication_role.h"
#include "result_rel.h"
#include "routing.h"
#include "row_lookup.h"
#include "target.h"
#include "target_cache.h"

/*
 * A partitioned table is closed, and opened again for the next change, when
 * this number of its partitions are open.  Each needs tens of kilobytes.
 */
#define MAX_OPEN_PARTITIONS 256

/*
 * The same for a table with generated columns, when its executor state has
 * this size.  The executor allocates memory there each time that an UPDATE
 * updates other columns than the one before, or, from PostgreSQL 16 on, that
 * it computes no generated column.
 */
#define MAX_EXECUTOR_BYTES (8 * 1024 * 1024)

/*
 * The open targets of this process, and for which circumstances they are open.
 */
typedef struct Targets
{
	dlist_head	open;			/* a list, the newest first */
	bool		were_replica;	/* session_replication_role was replica */
	uint32		definition_changes;
} Targets;

static Targets targets = {.open = DLIST_STATIC_INIT(targets.open),.were_replica = true};

static void
set_label(PapplyTarget *target, const LogicalRepRelation *remote)
{
	char	   *old_label = target->label;

	papply_account_forget_table();
	target->label = MemoryContextStrdup(papply_target_cache_context(),
										psprintf("%s.%s", remote->nspname, remote->relname));
	if (old_label != NULL)
		pfree(old_label);
}

/* Put this version of the remote definition into the server's map. */
static void
load_version(PapplyTarget *target, uint32 version)
{
	StringInfoData message;
	StringInfoData local;
	LogicalRepRelation *remote;
	Oid			schema;
	uint32		schema_changes = papply_target_cache_schema_changes();

	initStringInfo(&message);
	schema = papply_registry_get(version, &message);
	message.cursor = 1;			/* after the message type */
	target->version = 0;		/* until all of it is done */
	target->state = PAPPLY_TARGET_STALE;
	set_label(target, logicalrep_read_rel(&message));
	initStringInfo(&local);
	papply_local_schema_append(&local, message.data, message.len, schema);
	local.cursor = 1;
	remote = logicalrep_read_rel(&local);
	target->schema_changes = schema_changes;
	logicalrep_relmap_update(remote);
	logicalrep_partmap_reset_relmap(remote);
	pfree(local.data);
	pfree(message.data);
	target->version = version;
}

/*** what is kept across transactions ***/

/*
 * Throw an error because the target's changes may not be applied.  No
 * invalidation of a partitioned table reports new triggers of its partitions,
 * so find out its apply mode again the next time.
 */
static void
refuse_target(PapplyTarget *target, PapplyApplyModeCause cause)
{
	const char *phrase = papply_apply_mode_phrase(cause);

	target->state = PAPPLY_TARGET_STALE;
	ereport(ERROR,
			(errcode(PAPPLY_ERRCODE_NOT_IN_TURN),
			 errmsg("changes of table \"%s\" are not applied in parallel",
					RelationGetRelationName(target->rel)),
			 errdetail_internal("%s", phrase ? phrase : "ordinary triggers fire")));
}

/*
 * Is the target changed exclusively?  Where ordinary triggers fire, any table
 * is treated as one of apply mode exclusive.
 */
static bool
is_exclusive_target(const PapplyTarget *target)
{
	return target->apply_mode == PAPPLY_TABLE_EXCLUSIVE || !papply_role_is_replica();
}

/*
 * Throw an error if changes of the target may not be applied, or not alongside
 * others.
 */
static void
check_apply_mode(PapplyTarget *target, bool is_exclusive)
{
	if (target->apply_mode == PAPPLY_TABLE_NATIVE || (is_exclusive_target(target) && !is_exclusive))
		refuse_target(target, target->reason.cause);
	if (is_exclusive_target(target))
		papply_exclusive_wait();
}

/* Throw an error if the range is a batch and the target must not be part of one. */
static void
check_company(const PapplyTarget *target)
{
	if (target->has_user_code && papply_target_cache_in_batch())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("changes of table \"%s\" are not applied in a batch",
						RelationGetRelationName(target->rel))));
}

static void
begin_to_prepare(PapplyTarget *target)
{
	target->local_relid = RelationGetRelid(target->rel);
	target->state = PAPPLY_TARGET_PREPARING;
	memset(&target->functions, 0, sizeof(target->functions));
	target->functions.has_any = target->functions.has_object_names = true;
	target->userid = GetUserId();
	target->allowed = target->noted = 0;
	if (target->context != NULL)
		MemoryContextDelete(target->context);
	target->context = AllocSetContextCreate(papply_target_cache_context(), "parallel_apply target",
											ALLOCSET_SMALL_SIZES);
	target->ndefaults = 0;
	target->has_mutable_default = false;
	target->from_root = target->to_root = NULL;
	target->run_rows = NULL;
	target->lookup.index = InvalidOid;
}

/*
 * Prepare the columns.  Until the end, any change of a function or type counts.
 */
static void
end_preparing(PapplyTarget *target, const LogicalRepRelMapEntry *entry)
{
	MemoryContext old_context = MemoryContextSwitchTo(target->context);
	bool		has_root = OidIsValid(target->key.partition);

	papply_values_prepare_inputs(target, entry->attrmap);
	if (!has_root)				/* otherwise the root has its defaults */
		papply_values_prepare_defaults(target);
	if (target->rel->rd_rel->relkind == RELKIND_RELATION)
	{
		target->is_updatable = entry->updatable;
		papply_lookup_index_choose(target, entry->attrmap->attnums);
		target->has_other_unique = papply_lookup_index_has_other_unique(target->rel);
	}
	MemoryContextSwitchTo(old_context);
	target->functions = papply_function_cache_of(target->rel, has_root ? NULL : entry->attrmap,
												 target->context);
	target->has_user_code = target->has_triggers || target->functions.has_user_code;
	papply_insert_run_prepare(target);
	if (target->state == PAPPLY_TARGET_PREPARING)
		target->state = PAPPLY_TARGET_READY;
}

static bool
has_generated_columns(TupleDesc desc)
{
	return desc->constr != NULL && desc->constr->has_generated_stored;
}

static void
prepare_target(PapplyTarget *target)
{
	LogicalRepRelMapEntry *entry = target->entry;

	begin_to_prepare(target);
	target->is_partitioned = target->rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE;
	target->is_partition = target->rel->rd_rel->relispartition;
	target->apply_mode = papply_apply_mode(target->rel, entry->attrmap, &target->reason);
	target->has_triggers = papply_table_has_triggers(target->rel);
	target->has_generated = has_generated_columns(RelationGetDescr(target->rel));
	papply_target_cache_forget_partitions(target);
	end_preparing(target, entry);
}

static void
prepare_partition(PapplyTarget *target, PapplyTarget *root)
{
	begin_to_prepare(target);
	target->has_triggers = papply_table_has_triggers(target->rel);
	target->apply_mode = PAPPLY_TABLE_PARALLEL; /* if its root is */
	if (target->rel->rd_rel->relkind != RELKIND_RELATION)
		refuse_target(target, PAPPLY_CAUSE_NO_TABLE);
	if (target->has_triggers && !root->has_triggers)
	{
		root->state = PAPPLY_TARGET_STALE;	/* its apply mode must be found
											 * out again, too */
		refuse_target(target, PAPPLY_CAUSE_TRIGGER);
	}
	end_preparing(target, papply_routing_prepare_partition(target, root));
}

/*** what lives as long as the local transaction ***/

/*
 * Return the columns that an UPDATE to a tuple counts as updated, as in the
 * core apply loop: all published ones except large values that were not sent,
 * because they are unchanged.  tuple NULL: all published ones.
 */
static Bitmapset *
published_columns(PapplyTarget *target, const PapplyTuple *tuple)
{
	Bitmapset  *columns = NULL;

	for (int i = 0; i < RelationGetDescr(target->rel)->natts; i++)
	{
		int			column = target->inputs[i].column;

		if (column < 0 || (tuple != NULL && column < tuple->ncolumns &&
						   tuple->columns[column].kind == LOGICALREP_COLUMN_UNCHANGED))
			continue;
		columns = bms_add_member(columns, i + 1 - FirstLowInvalidHeapAttributeNumber);
	}
	return columns;
}

static void
make_range_table(PapplyTarget *target)
{
	Relation	rel = target->rel;
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	rte->rtekind = RTE_RELATION;
	rte->relid = RelationGetRelid(rel);
	rte->relkind = rel->rd_rel->relkind;
	rte->rellockmode = AccessShareLock;
	papply_compat_init_range_table(target->estate, rte, published_columns(target, NULL));
}

/* Set up what a row needs.  remote_slot may be set already. */
static void
start_executor(PapplyTarget *target)
{
	if (target->remote_slot == NULL)
		target->remote_slot = ExecInitExtraTupleSlot(target->estate,
													 RelationGetDescr(target->rel),
													 &TTSOpsVirtual);
	target->local_slot = table_slot_create(target->rel, &target->estate->es_tupleTable);
	target->insert_rel = target->update_rel = NULL;
	target->updated = NULL;
	papply_compat_init_eval_plan_qual(&target->epqstate, target->estate);
	target->index_rel = NULL;
	target->index_scan = NULL;
}

/*
 * Open and lock the table, without an executor state.  An error may leave its
 * entry in the server's map half open.  Then the next use loads the version
 * again, which resets the entry.
 */
static void
open_table(PapplyTarget *target, LOCKMODE lockmode)
{
	uint32		version = target->version;

	Assert(IsTransactionState() && !target->is_open);
	papply_target_cache_use(target);
	target->version = 0;
	target->entry = logicalrep_rel_open(target->key.remote_relid, lockmode);
	target->version = version;
	target->rel = target->entry->localrel;
	target->root_relid = RelationGetRelid(target->rel);
	dlist_push_head(&targets.open, &target->open_link);
	target->is_open = true;
	target->estate = NULL;
	target->routing = NULL;
	target->open_partitions = 0;
	target->remote_slot = NULL;

	if (target->entry->state != SUBREL_STATE_READY)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not synchronized",
						RelationGetRelationName(target->rel))));
}

/*
 * Open the table and set up its executor state.  If user code may run, this is
 * done for each change, so what the code allocates is in this executor state
 * or in the context of the change.
 */
static void
open_target(PapplyTarget *target)
{
	MemoryContext old_context;
	PapplyUserContext user_context;

	open_table(target, RowExclusiveLock);

	/* The owner's functions may be called in defaults. */
	papply_compat_begin_as_table_owner(target->rel, &user_context);
	if (target->state != PAPPLY_TARGET_READY || target->local_relid != target->entry->localreloid ||
		target->userid != GetUserId())
		prepare_target(target);
	papply_compat_end_as_table_owner(&user_context);
	old_context = MemoryContextSwitchTo(TopTransactionContext);
	target->estate = CreateExecutorState();
	MemoryContextSwitchTo(target->estate->es_query_cxt);
	make_range_table(target);
	start_executor(target);
	if (target->is_partitioned)
		papply_routing_begin(target);
	MemoryContextSwitchTo(old_context);
}

/*
 * Open a partition as part of its root.  Tuple routing has opened the table,
 * and will close it.
 */
static void
open_partition(PapplyTarget *target, PapplyTarget *root, ResultRelInfo *result_rel)
{
	MemoryContext old_context;

	Assert(root->is_open && !target->is_open);
	target->rel = result_rel->ri_RelationDesc;
	target->root_relid = RelationGetRelid(root->rel);
	if (target->state != PAPPLY_TARGET_READY || target->userid != GetUserId())
		prepare_partition(target, root);
	check_company(target);
	root->has_user_code |= target->has_user_code;
	papply_target_cache_use(target);
	old_context = MemoryContextSwitchTo(root->estate->es_query_cxt);
	target->estate = root->estate;
	target->remote_slot = target->from_root ? NULL : root->remote_slot;
	start_executor(target);
	papply_result_rel_use(target, root, result_rel);
	root->open_partitions++;
	dlist_push_head(&targets.open, &target->open_link);
	target->is_open = true;
	MemoryContextSwitchTo(old_context);
}

static void
end_executor(PapplyTarget *target)
{
	papply_row_lookup_end(target);
	EvalPlanQualEnd(&target->epqstate);
	if (OidIsValid(target->key.partition))
		return;					/* the rest is closed with the root */

	if (target->routing != NULL)
		papply_routing_end(target);
	ExecCloseResultRelations(target->estate);
	ExecResetTupleTable(target->estate->es_tupleTable, false);
	FreeExecutorState(target->estate);
}

/* Close this target only.  Partitions must be closed before their root. */
static void
close_one(PapplyTarget *target)
{
	Assert(target->is_open);
	papply_insert_run_flush();
	dlist_delete(&target->open_link);
	if (target->estate != NULL)
		end_executor(target);
	if (!OidIsValid(target->key.partition))
		logicalrep_rel_close(target->entry, NoLock);
	target->is_open = false;
	papply_insert_run_close(target);
}

/*
 * Close a table with its partitions, or all others.  A root, which was opened
 * before its partitions, is closed after them.
 */
static void
close_targets(LogicalRepRelId remote_relid, bool others)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &targets.open)
	{
		PapplyTarget *target = dlist_container(PapplyTarget, open_link, iter.cur);

		if ((target->key.remote_relid != remote_relid) == others)
			close_one(target);
	}
}

static void
use_version(PapplyTarget *target, uint32 version)
{
	if (target->version == version &&
		target->schema_changes == papply_target_cache_schema_changes())
		return;
	if (target->is_open)
		close_targets(target->key.remote_relid, false);
	load_version(target, version);
}

void
papply_target_use_version(uint32 version)
{
	StringInfoData message;

	initStringInfo(&message);
	(void) papply_registry_get(version, &message);
	use_version(papply_target_cache_get(papply_message_get_uint32(message.data + 1), InvalidOid), version);
}

Relation
papply_target_open_to_truncate(LogicalRepRelId remote_relid)
{
	PapplyTarget *target = papply_target_cache_get(remote_relid, InvalidOid);

	open_table(target, AccessExclusiveLock);
	return target->rel;
}

/*
 * Close all targets if session_replication_role, a function or a type has
 * changed.  Open ones are set up for the triggers of the former role, and for
 * the functions and types as they were.
 */
static void
follow_changes(void)
{
	if (targets.were_replica != papply_role_is_replica() ||
		targets.definition_changes != papply_target_cache_definition_changes())
		papply_target_close_all();
	targets.were_replica = papply_role_is_replica();
	targets.definition_changes = papply_target_cache_definition_changes();
}

PapplyTarget *
papply_target_open(LogicalRepRelId remote_relid, uint32 version, bool is_exclusive)
{
	PapplyTarget *target = papply_target_cache_get(remote_relid, InvalidOid);

	follow_changes();
	use_version(target, version);
	papply_account_show_table(target->label);
	if (!target->is_open)
		open_target(target);
	check_apply_mode(target, is_exclusive);
	check_company(target);
	if (papply_target_runs_code(target))
		close_targets(remote_relid, true);
	return target;
}

PapplyTarget *
papply_target_peek(LogicalRepRelId remote_relid, uint32 version)
{
	PapplyTarget *target = papply_target_cache_find(remote_relid);

	if (target == NULL || target->state != PAPPLY_TARGET_READY || target->version != version ||
		papply_target_runs_code(target) || target->apply_mode != PAPPLY_TABLE_PARALLEL ||
		!OidIsValid(target->lookup.index) || !target->lookup.is_identity ||
		!target->lookup.is_btree)
		return NULL;
	return target;
}

const PapplyTarget *
papply_target_plain(LogicalRepRelId remote_relid, uint32 version)
{
	PapplyTarget *target = papply_target_cache_find(remote_relid);

	return target != NULL && target->version == version && papply_insert_run_is_plain(target) ?
		target : NULL;
}

bool
papply_target_runs_code(const PapplyTarget *target)
{
	return papply_result_rel_fires_triggers(target) || target->apply_mode == PAPPLY_TABLE_EXCLUSIVE;
}

static bool
is_too_large(const PapplyTarget *target)
{
	return target->open_partitions >= MAX_OPEN_PARTITIONS ||
		(target->has_generated &&
		 MemoryContextMemAllocated(target->estate->es_query_cxt, false) >= MAX_EXECUTOR_BYTES);
}

void
papply_target_release(PapplyTarget *target)
{
	if (papply_target_runs_code(target) || is_too_large(target))
		close_targets(target->key.remote_relid, false);
}

void
papply_target_set_updated(PapplyTarget *target, PapplyTarget *table, const PapplyTuple *tuple)
{
	Bitmapset  *columns = published_columns(target, tuple);
	MemoryContext old_context;

	if (!bms_equal(columns, table->updated))
	{
		old_context = MemoryContextSwitchTo(target->estate->es_query_cxt);
		table->updated = bms_copy(columns);
		MemoryContextSwitchTo(old_context);
		if (table->update_rel != NULL)
			papply_compat_forget_generated(table->update_rel);
	}
	papply_compat_set_updated_columns(target->estate, table->updated);
}

PapplyTarget *
papply_target_open_partition(PapplyTarget *root, ResultRelInfo *result_rel)
{
	Oid			partition = RelationGetRelid(result_rel->ri_RelationDesc);
	PapplyTarget *target = papply_target_cache_get(root->key.remote_relid, partition);

	if (!target->is_open)
		open_partition(target, root, result_rel);
	return target;
}

void
papply_target_close_all(void)
{
	papply_account_forget_table();
	while (!dlist_is_empty(&targets.open))
		close_one(dlist_head_element(PapplyTarget, open_link, &targets.open));
}

void
papply_target_forget_all(void)
{
	dlist_iter	iter;

	papply_account_forget_table();
	papply_insert_run_forget();
	dlist_foreach(iter, &targets.open)
	{
		PapplyTarget *target = dlist_container(PapplyTarget, open_link, iter.cur);

		target->is_open = false;
		if (target->entry != NULL)
			target->entry->localrel = NULL; /* the server's map does not
											 * notice aborts */
	}
	dlist_init(&targets.open);
}
