/*-------------------------------------------------------------------------
 * target.c
 *	  The local table that changes of a remote relation are applied to.
 *
 * Runs in a writer.
 *
 * The native worker opens the table, its indexes and an executor state for
 * every row.  Here they live as long as the local transaction, and what needs
 * no lock (column map, input functions, defaults, scan keys) until the
 * relation cache says that the table has changed.  While the table is open its
 * lock keeps all of this true.
 *
 * The map from remote to local relation, with its checks and messages, is the
 * server's own (logicalrelation.h), fed from the registry: the version that a
 * change was made with is put into it before the table is opened.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/table.h"
#include "access/tableam.h"
#include "miscadmin.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "pool.h"
#include "relation_registry.h"
#include "row_lookup.h"
#include "table_class.h"
#include "target.h"

static HTAB *targets = NULL;
static MemoryContext targets_context = NULL;
static PapplyTarget *open_targets = NULL;

/* In logicalrep_rel_open(), which may throw with the table half open. */
static PapplyTarget *opening = NULL;

/* Counts changes of pg_subscription_rel. */
static uint32 state_counter = 1;

static void
invalidate_target(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	PapplyTarget *target;

	hash_seq_init(&status, targets);
	while ((target = hash_seq_search(&status)) != NULL)
		if (relid == InvalidOid || target->local_relid == relid)
			target->is_valid = false;
}

static void
invalidate_states(Datum arg, int cacheid, uint32 hashvalue)
{
	state_counter++;
}

void
papply_target_init(void)
{
	HASHCTL		ctl;

	targets_context = AllocSetContextCreate(TopMemoryContext, "parallel_apply targets",
											ALLOCSET_DEFAULT_SIZES);
	ctl.keysize = sizeof(LogicalRepRelId);
	ctl.entrysize = sizeof(PapplyTarget);
	ctl.hcxt = targets_context;
	targets = hash_create("parallel_apply targets", 128, &ctl,
						  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(invalidate_target, (Datum) 0);
	CacheRegisterSyscacheCallback(SUBSCRIPTIONRELMAP, invalidate_states, (Datum) 0);
}

uint32
papply_target_states(void)
{
	return state_counter;
}

/* Put that version of the remote definition into the server's map. */
static void
load_version(PapplyTarget *target, uint32 version)
{
	StringInfoData message;

	initStringInfo(&message);
	papply_registry_get(version, &message);
	message.cursor = 1;			/* behind the kind byte */
	logicalrep_relmap_update(logicalrep_read_rel(&message));
	pfree(message.data);
	target->version = version;
	target->is_valid = false;
}

/*** what is kept across transactions ***/

static void
prepare_inputs(PapplyTarget *target, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	target->inputs = palloc0(desc->natts * sizeof(PapplyColumnInput));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		PapplyColumnInput *input = &target->inputs[i];
		Oid			function;

		input->column = att->attisdropped ? -1 : target->entry->attrmap->attnums[i];
		if (input->column < 0)
			continue;
		getTypeInputInfo(att->atttypid, &function, &input->text_param);
		fmgr_info_cxt(function, &input->text_function, target->context);
	}
}

/* Columns that the publisher does not send get their defaults. */
static void
prepare_defaults(PapplyTarget *target, Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	target->ndefaults = 0;
	target->default_columns = palloc(desc->natts * sizeof(int));
	target->default_exprs = palloc(desc->natts * sizeof(ExprState *));
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Expr	   *expr;

		if (att->attisdropped || att->attgenerated || target->inputs[i].column >= 0)
			continue;
		expr = (Expr *) build_column_default(rel, i + 1);
		if (expr == NULL)
			continue;
		target->default_columns[target->ndefaults] = i;
		target->default_exprs[target->ndefaults++] = ExecInitExpr(expression_planner(expr), NULL);
	}
}

static void
prepare(PapplyTarget *target)
{
	Relation	rel = target->entry->localrel;
	const char *why_native = papply_table_why_native(rel, target->entry->attrmap);
	MemoryContext old_context;

	if (why_native != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("changes of table \"%s\" are not applied in parallel",
						RelationGetRelationName(rel)),
				 errdetail_internal("%s", why_native)));

	target->local_relid = RelationGetRelid(rel);
	target->is_valid = true;	/* unless something changes from here on */
	if (target->context != NULL)
		MemoryContextDelete(target->context);
	target->context = AllocSetContextCreate(targets_context, "parallel_apply target",
											ALLOCSET_SMALL_SIZES);
	old_context = MemoryContextSwitchTo(target->context);
	target->label = psprintf("%s.%s", target->entry->remoterel.nspname,
							 target->entry->remoterel.relname);
	prepare_inputs(target, rel);
	prepare_defaults(target, rel);
	target->lookup_index = papply_compat_lookup_index(target->entry);
	papply_row_lookup_prepare(target);
	MemoryContextSwitchTo(old_context);
}

/*** what lives as long as the local transaction ***/

/* All published columns count as updated: the message does not tell which are. */
static Bitmapset *
published_columns(PapplyTarget *target, TupleDesc desc)
{
	Bitmapset  *columns = NULL;

	for (int i = 0; i < desc->natts; i++)
		if (target->inputs[i].column >= 0)
			columns = bms_add_member(columns,
									 i + 1 - FirstLowInvalidHeapAttributeNumber);
	return columns;
}

/*
 * No trigger of a target fires in replica mode, or changes of it would not be
 * applied here, so the executor need not look at them.
 */
static ResultRelInfo *
make_result_rel(PapplyTarget *target)
{
	MemoryContext old_context = MemoryContextSwitchTo(target->estate->es_query_cxt);
	ResultRelInfo *result = makeNode(ResultRelInfo);

	InitResultRelInfo(result, target->entry->localrel, 1, NULL, 0);
	result->ri_TrigDesc = NULL;
	ExecOpenIndices(result, false);
	MemoryContextSwitchTo(old_context);
	return result;
}

static void
start_executor(PapplyTarget *target)
{
	Relation	rel = target->entry->localrel;
	TupleDesc	desc = RelationGetDescr(rel);
	RangeTblEntry *rte = makeNode(RangeTblEntry);

	target->estate = CreateExecutorState();
	rte->rtekind = RTE_RELATION;
	rte->relid = RelationGetRelid(rel);
	rte->relkind = rel->rd_rel->relkind;
	rte->rellockmode = AccessShareLock;
	papply_compat_init_range_table(target->estate, rte, published_columns(target, desc));

	target->remote_slot = ExecInitExtraTupleSlot(target->estate, desc, &TTSOpsVirtual);
	target->local_slot = table_slot_create(rel, &target->estate->es_tupleTable);
	target->insert_rel = target->update_rel = NULL;
	papply_compat_init_eval_plan_qual(&target->epqstate, target->estate);
	target->index_rel = NULL;
	target->index_scan = NULL;
	target->allowed = 0;
}

static void
open_target(PapplyTarget *target)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopTransactionContext);
	PapplyUserContext user_context;

	/* a state that was read before pg_subscription_rel changed is stale */
	if (target->entry != NULL && target->state_counter != state_counter)
		target->entry->state = SUBREL_STATE_UNKNOWN;
	target->state_counter = state_counter;

	opening = target;
	target->entry = logicalrep_rel_open(target->remote_relid, RowExclusiveLock);
	opening = NULL;
	target->next_open = open_targets;
	open_targets = target;
	target->is_open = true;
	target->estate = NULL;

	if (target->entry->state != SUBREL_STATE_READY)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is not synchronized",
						RelationGetRelationName(target->entry->localrel))));
	if (!target->is_valid || target->local_relid != target->entry->localreloid)
	{
		/* defaults may have functions of the owner */
		papply_compat_begin_as_table_owner(target->entry->localrel, &user_context);
		prepare(target);
		papply_compat_end_as_table_owner(&user_context);
	}
	start_executor(target);
	MemoryContextSwitchTo(old_context);
}

static void
close_target(PapplyTarget *target)
{
	papply_row_lookup_end(target);
	if (target->update_rel != NULL && target->update_rel != target->insert_rel)
		ExecCloseIndices(target->update_rel);
	if (target->insert_rel != NULL)
		ExecCloseIndices(target->insert_rel);
	EvalPlanQualEnd(&target->epqstate);
	ExecResetTupleTable(target->estate->es_tupleTable, false);
	FreeExecutorState(target->estate);
	logicalrep_rel_close(target->entry, NoLock);
	target->is_open = false;
}

/* Only this one; the others stay. */
static void
close_one(PapplyTarget *target)
{
	PapplyTarget **link = &open_targets;

	while (*link != target)
		link = &(*link)->next_open;
	*link = target->next_open;
	close_target(target);
}

PapplyTarget *
papply_target_open(LogicalRepRelId remote_relid, uint32 version)
{
	PapplyTarget *target;
	bool		found;

	target = hash_search(targets, &remote_relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(target, 0, sizeof(*target));
		target->remote_relid = remote_relid;
	}
	if (target->version != version)
	{
		if (target->is_open)
			close_one(target);
		load_version(target, version);
	}
	if (!target->is_open)
		open_target(target);
	return target;
}

void
papply_target_check_rights(PapplyTarget *target, AclMode rights)
{
	Oid			relid = target->local_relid;

	if ((target->allowed & rights) == rights)
		return;
	if (pg_class_aclmask(relid, GetUserId(), rights, ACLMASK_ALL) != rights ||
		check_enable_rls(relid, InvalidOid, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s",
						RelationGetRelationName(target->entry->localrel))));
	target->allowed |= rights;
}

/*
 * INSERT and UPDATE may differ in which generated columns they compute, so
 * they may need a state each.
 */
static bool
shares_result_rel(PapplyTarget *target)
{
	TupleConstr *constr = RelationGetDescr(target->entry->localrel)->constr;

	return !(PAPPLY_SHARES_GENERATED && constr && constr->has_generated_stored);
}

ResultRelInfo *
papply_target_insert_rel(PapplyTarget *target)
{
	if (target->insert_rel == NULL)
		target->insert_rel = (target->update_rel && shares_result_rel(target)) ?
			target->update_rel : make_result_rel(target);
	return target->insert_rel;
}

ResultRelInfo *
papply_target_update_rel(PapplyTarget *target)
{
	if (target->update_rel == NULL)
		target->update_rel = (target->insert_rel && shares_result_rel(target)) ?
			target->insert_rel : make_result_rel(target);
	return target->update_rel;
}

void
papply_target_close_all(void)
{
	while (open_targets != NULL)
		close_one(open_targets);
}

void
papply_target_forget_all(void)
{
	for (PapplyTarget *target = open_targets; target != NULL; target = target->next_open)
	{
		target->is_open = false;
		if (target->entry != NULL)
			target->entry->localrel = NULL; /* the map is not told of aborts */
	}
	open_targets = NULL;

	/* what the map has kept of it goes when the version is loaded again */
	if (opening != NULL)
		opening->version = 0;
	opening = NULL;
}
