/*-------------------------------------------------------------------------
 * result_rel.c
 *	  The executor's state for changes of a table that is open.
 *
 * Runs in a writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "executor/executor.h"
#include "utils/rel.h"

#include "replication_role.h"
#include "result_rel.h"

bool
papply_result_rel_fires_triggers(const PapplyTarget *target)
{
	return target->has_triggers || !papply_role_is_replica();
}

void
papply_result_rel_use(PapplyTarget *target, const PapplyTarget *root, ResultRelInfo *result_rel)
{
	if (!papply_result_rel_fires_triggers(root))
		result_rel->ri_TrigDesc = NULL; /* none of them fires */
	target->insert_rel = result_rel;
}

static void
make_result_rel(PapplyTarget *target)
{
	MemoryContext old_context = MemoryContextSwitchTo(target->estate->es_query_cxt);
	ResultRelInfo *result = makeNode(ResultRelInfo);

	InitResultRelInfo(result, target->rel, 1, NULL, 0);
	ExecOpenIndices(result, false);
	target->estate->es_opened_result_relations =
		lappend(target->estate->es_opened_result_relations, result);
	papply_result_rel_use(target, target, result);
	MemoryContextSwitchTo(old_context);
}

ResultRelInfo *
papply_result_rel_insert(PapplyTarget *target)
{
	if (target->insert_rel == NULL)
		make_result_rel(target);
	return target->insert_rel;
}

/*
 * INSERT and UPDATE may compute different generated columns, so they may need
 * a separate state for these.  Everything else is shared.
 */
ResultRelInfo *
papply_result_rel_update(PapplyTarget *target)
{
	TupleConstr *constr = RelationGetDescr(target->rel)->constr;

	if (target->update_rel != NULL)
		return target->update_rel;
	target->update_rel = papply_result_rel_insert(target);
	if (PAPPLY_SHARES_GENERATED && constr && constr->has_generated_stored)
	{
		target->update_rel = MemoryContextAlloc(target->estate->es_query_cxt,
												sizeof(ResultRelInfo));
		*target->update_rel = *target->insert_rel;
		papply_compat_forget_generated(target->update_rel);
	}
	return target->update_rel;
}
