/*-------------------------------------------------------------------------
 * apply_mode.c
 *	  Find out how changes of a table may be applied.
 *
 * Runs in the receiver, which marks transactions by the answer, and in
 * writers, which ask with the table locked.  The answer to a writer is
 * decisive.
 *
 * Parallel: if the dependencies miss a conflict between two transactions, it
 * appears as a lock wait, a missing row or a unique violation, because both
 * transactions change the same row of the same table.
 *
 * Exclusive: a conflict could be missed silently if user code reads, counts or
 * locks something else.  Such code is in triggers that fire in replica mode,
 * and in functions in defaults of columns that the publisher does not send.
 * It has to find what it would find in PostgreSQL's own apply, so a writer
 * runs it while no other transaction is being applied.  The user can declare
 * that the triggers of a table do not require this (table_options.c).
 *
 * The functions concerned are volatile ones, and stable ones that are not
 * built in, which may read tables and would do that with the snapshot of a
 * batch.  The server's own stable functions depend on things that are not
 * replicated, such as the time or the user.  The exceptions are those that
 * export tables as XML or call the functions of a type that a text names, and
 * the number and the snapshot of the local transaction, because a batch has
 * only one for several remote transactions.
 *
 * Native: writers cannot apply the changes.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "apply_mode.h"
#include "function_cache.h"
#include "table_options.h"

/*
 * Does the table have a trigger that fires when the change of a single row is
 * applied?  Note the first one as the reason.
 */
static bool
find_trigger(Oid relid, PapplyApplyModeReason *reason)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	bool		found = false;

	ScanKeyInit(&key, Anum_pg_trigger_tgrelid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, TriggerRelidNameIndexId, true, NULL, 1, &key);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_trigger form = (Form_pg_trigger) GETSTRUCT(tuple);

		/*
		 * statement-level triggers do not fire, because changes are not
		 * applied by statements
		 */
		if (TRIGGER_FOR_ROW(form->tgtype) &&
			(form->tgenabled == TRIGGER_FIRES_ON_REPLICA ||
			 form->tgenabled == TRIGGER_FIRES_ALWAYS))
		{
			found = true;
			reason->cause = PAPPLY_CAUSE_TRIGGER;
			reason->trigger_relid = relid;
			reason->trigger = form->tgname;
		}
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return found;
}

/*
 * Check relhastriggers.  False is reliable; true may be left from a trigger
 * that was dropped.
 */
static bool
may_have_triggers(Oid relid)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relhastriggers;
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Does the table or any of its partitions have such triggers?  There can be
 * thousands of partitions, so check relhastriggers before scanning pg_trigger.
 */
static bool
partitions_have_triggers(Oid relid, PapplyApplyModeReason *reason)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
		if (may_have_triggers(lfirst_oid(lc)) &&
			find_trigger(lfirst_oid(lc), reason))
		return true;
	return false;
}

static bool
has_triggers(Relation rel, PapplyApplyModeReason *reason)
{
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		return partitions_have_triggers(RelationGetRelid(rel), reason);
	return rel->trigdesc != NULL &&
		find_trigger(RelationGetRelid(rel), reason);
}

bool
papply_table_has_triggers(Relation rel)
{
	PapplyApplyModeReason reason;

	return has_triggers(rel, &reason);
}

bool
papply_table_has_domain_default(Relation rel, const AttrMap *attnums)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (!att->attisdropped && attnums->attnums[i] < 0 &&
			get_typtype(att->atttypid) == TYPTYPE_DOMAIN)
			return true;
	}
	return false;
}

bool
papply_table_may_check_domain(Relation rel, const AttrMap *attnums)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		if (get_typtype(att->atttypid) == TYPTYPE_DOMAIN)
			return true;
		if (attnums->attnums[i] < 0 && att->atthasdef && !att->attgenerated)
			return true;
	}
	return false;
}

/*
 * Can the function have a different result alongside other transactions, or in
 * a batch?
 */
static bool
makes_exclusive(Oid function, void *found)
{
	char		volatility = func_volatile(function);
	bool		is_exclusive = volatility == PROVOLATILE_VOLATILE;

	if (volatility == PROVOLATILE_STABLE &&
		(function >= FirstNormalObjectId || papply_compat_takes_type_name(function)))
		is_exclusive = true;

	switch (function)
	{
			/* these read tables */
		case F_TABLE_TO_XML:
		case F_TABLE_TO_XML_AND_XMLSCHEMA:
		case F_SCHEMA_TO_XML:
		case F_SCHEMA_TO_XML_AND_XMLSCHEMA:
		case F_DATABASE_TO_XML:
		case F_DATABASE_TO_XML_AND_XMLSCHEMA:
			/* these distinguish local transactions */
		case F_TXID_CURRENT:
		case F_TXID_CURRENT_IF_ASSIGNED:
		case F_PG_CURRENT_XACT_ID:
		case F_PG_CURRENT_XACT_ID_IF_ASSIGNED:
		case F_TXID_CURRENT_SNAPSHOT:
		case F_PG_CURRENT_SNAPSHOT:
			is_exclusive = true;
	}
	if (is_exclusive)
		*(Oid *) found = function;
	return is_exclusive;
}

static bool
has_exclusive_default(Relation rel, const AttrMap *attnums, PapplyApplyModeReason *reason)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped || att->attgenerated || attnums->attnums[i] >= 0)
			continue;
		if (papply_function_cache_find(build_column_default(rel, i + 1), makes_exclusive,
									   &reason->function))
		{
			reason->cause = PAPPLY_CAUSE_DEFAULT;
			reason->column = i + 1;
			return true;
		}
	}
	return false;
}

PapplyApplyMode
papply_apply_mode_unlocked(Oid relid)
{
	PapplyApplyModeReason reason;

	return partitions_have_triggers(relid, &reason) ?
		PAPPLY_TABLE_EXCLUSIVE : PAPPLY_TABLE_PARALLEL;
}

const char *
papply_apply_mode_phrase(PapplyApplyModeCause cause)
{
	static const char *const phrases[] = {
		[PAPPLY_CAUSE_NONE] = NULL,
		[PAPPLY_CAUSE_NO_TABLE] = "it is not a table",
		[PAPPLY_CAUSE_TRIGGER] = "it has a trigger that fires in replica mode",
		[PAPPLY_CAUSE_DEFAULT] = "a column that is not published has a default that may depend on other transactions"
	};

	return phrases[cause];
}

PapplyApplyMode
papply_apply_mode(Relation rel, const AttrMap *attnums, PapplyApplyModeReason *reason)
{
	if (rel->rd_rel->relkind != RELKIND_RELATION &&
		rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
	{
		reason->cause = PAPPLY_CAUSE_NO_TABLE;
		return PAPPLY_TABLE_NATIVE;
	}
	if (has_triggers(rel, reason) &&
		!papply_table_options_allow_triggers(RelationGetRelid(rel)))
		return PAPPLY_TABLE_EXCLUSIVE;
	if (has_exclusive_default(rel, attnums, reason))
		return PAPPLY_TABLE_EXCLUSIVE;
	reason->cause = PAPPLY_CAUSE_NONE;
	return PAPPLY_TABLE_PARALLEL;
}
