/*-------------------------------------------------------------------------
 * table_class.c
 *	  May changes of a table be applied by writers at all?
 *
 * Runs in the receiver, which asks so that a transaction goes to the native
 * loop at once, and in writers, which ask with the table locked and thus have
 * the last word.
 *
 * A conflict between two transactions that the dependencies miss shows itself
 * as a lock wait, a missing row or a unique violation, because both touch the
 * same row of the same table.  What could be missed silently is code of the
 * user that reads or counts something else: triggers that fire in replica
 * mode, and volatile defaults of columns that the publisher does not send.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/rel.h"

#include "table_class.h"

static bool
has_trigger_for_replica(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		char		enabled = triggers->triggers[i].tgenabled;

		if (enabled == TRIGGER_FIRES_ON_REPLICA || enabled == TRIGGER_FIRES_ALWAYS)
			return true;
	}
	return false;
}

static bool
has_volatile_default(Relation rel, const AttrMap *attnums)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || att->attgenerated || attnums->attnums[i] >= 0)
			continue;
		if (contain_volatile_functions(build_column_default(rel, i + 1)))
			return true;
	}
	return false;
}

const char *
papply_table_why_native(Relation rel, const AttrMap *attnums)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return "it is not a table";
	if (has_trigger_for_replica(rel))
		return "it has a trigger that fires in replica mode";
	if (attnums != NULL && has_volatile_default(rel, attnums))
		return "a column that is not published has a volatile default";
	return NULL;
}
