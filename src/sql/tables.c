/*-------------------------------------------------------------------------
 * tables.c
 *	  The function behind the view of tables: how one is applied, and why.
 *
 * Runs in a user's backend.
 *
 * This file decides nothing.  It calls the functions that decide, with the
 * present table, and expresses their results in words: apply_mode.c,
 * lookup_index.c and row_keys.c.  The last description of the table by the
 * publisher is stored with the counters (table_statistics.c).  Before the
 * first change of a table, all columns are assumed to be published, and the
 * publisher is assumed to have the local replica identity.
 *
 * If another session has locked a table, or an index of it, the function does
 * not wait for the lock.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_sequence.h"
#include "catalog/pg_subscription_rel.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "nodes/nodeFuncs.h"
#include "rewrite/rewriteHandler.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "apply_mode.h"
#include "lookup_index.h"
#include "result_rows.h"
#include "row_keys.h"
#include "sql_common.h"
#include "table_statistics.h"

PG_FUNCTION_INFO_V1(papply_get_table);

static const char *const apply_modes[] = {
	[PAPPLY_TABLE_PARALLEL] = "parallel",
	[PAPPLY_TABLE_EXCLUSIVE] = "exclusive",
	[PAPPLY_TABLE_NATIVE] = "native"
};

/* Findings about a table. */
typedef struct Findings
{
	PapplyApplyMode apply_mode;
	PapplyTableDescription description;
	ArrayBuildState *codes;
	StringInfoData reasons;
	StringInfoData remedies;
} Findings;

/*
 * Add a finding: its code, as the view shows it, why it is one, and what can be done.
 * Programs may rely on the codes, and doc/table_views.md explains each.
 */
static void
add_finding(Findings *findings, const char *code, const char *reason, const char *remedy)
{
	(void) accumArrayResult(findings->codes, CStringGetTextDatum(code), false,
							TEXTOID, CurrentMemoryContext);
	appendStringInfo(&findings->reasons, "%s%s",
					 findings->reasons.len > 0 ? "; " : "", reason);
	appendStringInfo(&findings->remedies, "%s%s",
					 findings->remedies.len > 0 ? "; " : "", remedy);
}

/*
 * Return the name of a table.  A partition is not locked, so it may have been
 * dropped.
 */
static char *
name_of_table(Oid relid)
{
	char	   *name = get_rel_name(relid);

	return name == NULL ? psprintf("%u", relid) :
		quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)), name);
}

/*
 * Map local columns to published ones.  Only whether a column is published is
 * known.
 */
static AttrMap *
map_columns(Relation rel, const PapplyTableDescription *description, bool is_published)
{
	TupleDesc	desc = RelationGetDescr(rel);
	AttrMap    *map = make_attrmap(desc->natts);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		bool		is_described = i < description->natts && i < PAPPLY_DESCRIBED_COLUMNS;

		map->attnums[i] = i;
		if (att->attisdropped || att->attgenerated ||
			!(is_described ? papply_table_description_has(description->published, i) : is_published))
			map->attnums[i] = -1;
	}
	return map;
}

/*
 * Assume the local replica identity before the publisher has described the
 * table: see the head of this file.
 */
static void
assume_identity(Relation rel, PapplyTableDescription *description)
{
	Oid			oid = papply_compat_identity_index(rel);
	Relation	index;

	if (!OidIsValid(oid))
		return;
	index = index_open(oid, AccessShareLock);
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		AttrNumber	attnum = index->rd_index->indkey.values[i];

		if (attnum > 0 && attnum <= PAPPLY_DESCRIBED_COLUMNS)
			papply_table_description_set(description->identity, attnum - 1);
	}
	index_close(index, AccessShareLock);
}

/* Describe a default.  Its function has been looked up just before. */
static char *
phrase_default(const PapplyApplyModeReason *reason)
{
	return psprintf("a default with %s function %s",
					func_volatile(reason->function) == PROVOLATILE_VOLATILE ?
					"volatile" : "stable",
					format_procedure(reason->function));
}

static void
explain_apply_mode(Findings *findings, Relation rel, const PapplyApplyModeReason *reason)
{
	char	   *table = name_of_table(RelationGetRelid(rel));

	switch (reason->cause)
	{
		case PAPPLY_CAUSE_NONE:
			break;
		case PAPPLY_CAUSE_NO_TABLE:
			add_finding(findings, "not_a_table",
						papply_apply_mode_phrase(reason->cause),
						"subscribe to it as a table");
			break;
		case PAPPLY_CAUSE_TRIGGER:
			add_finding(findings, "replica_trigger",
						psprintf("trigger %s of table %s fires in replica mode",
								 quote_identifier(NameStr(reason->trigger)),
								 name_of_table(reason->trigger_relid)),
						psprintf("if it uses only the row, declare that: "
								 "SELECT parallel_apply.set_table_option(%s, 'triggers', 'parallel')",
								 quote_literal_cstr(table)));
			break;
		case PAPPLY_CAUSE_DEFAULT:
			add_finding(findings, "unpublished_default",
						psprintf("column %s, which is not published, has %s",
								 quote_identifier(get_attname(RelationGetRelid(rel), reason->column, false)),
								 phrase_default(reason)),
						"publish the column, or give it a default without that function");
			break;
	}
}

/*
 * Report defaults that matter only if the publisher turns out not to send the
 * column.
 */
static void
explain_unknown_columns(Findings *findings, Relation rel)
{
	AttrMap    *map = map_columns(rel, &findings->description, false);
	PapplyApplyModeReason reason;

	if (papply_apply_mode(rel, map, &reason) == PAPPLY_TABLE_EXCLUSIVE &&
		reason.cause == PAPPLY_CAUSE_DEFAULT)
		add_finding(findings, "possible_default",
					psprintf("column %s has %s: the table is exclusive if the publisher does not "
							 "send that column, which is known from the first change on",
							 quote_identifier(get_attname(RelationGetRelid(rel), reason.column, false)),
							 phrase_default(&reason)),
					"publish the column, or give it a default without that function");
}

static int64
cache_of_sequence(Oid sequence)
{
	HeapTuple	tuple = SearchSysCache1(SEQRELID, ObjectIdGetDatum(sequence));
	int64		cache = 1;

	if (HeapTupleIsValid(tuple))
	{
		cache = ((Form_pg_sequence) GETSTRUCT(tuple))->seqcache;
		ReleaseSysCache(tuple);
	}
	return cache;
}

/* Return whether the expression takes numbers from a sequence with a cache. */
static bool
find_cached_sequence(Node *node, Oid *sequence)
{
	FuncExpr   *call = (FuncExpr *) node;

	if (node == NULL)
		return false;
	*sequence = InvalidOid;
	if (IsA(node, NextValueExpr))
		*sequence = ((NextValueExpr *) node)->seqid;
	else if (IsA(node, FuncExpr) && call->funcid == F_NEXTVAL && IsA(linitial(call->args), Const))
		*sequence = DatumGetObjectId(((Const *) linitial(call->args))->constvalue);
	if (OidIsValid(*sequence) && cache_of_sequence(*sequence) > 1)
		return true;
	return expression_tree_walker(node, find_cached_sequence, sequence);
}

/* Report sequences whose numbers depend on the writer that takes them. */
static void
explain_sequences(Findings *findings, Relation rel, const AttrMap *map)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);
		Oid			sequence;

		if (att->attisdropped || att->attgenerated || map->attnums[i] >= 0 ||
			!find_cached_sequence(build_column_default(rel, i + 1), &sequence))
			continue;
		add_finding(findings, "sequence_cache",
					psprintf("sequence %s has a cache: once it is used, PostgreSQL's own apply "
							 "applies all transactions that run triggers or such defaults",
							 name_of_table(sequence)),
					psprintf("ALTER SEQUENCE %s CACHE 1", name_of_table(sequence)));
	}
}

static void
explain_partitions(Findings *findings, Relation rel)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(RelationGetRelid(rel), NoLock, NULL))
	{
		if (get_rel_relkind(lfirst_oid(lc)) == RELKIND_FOREIGN_TABLE)
			add_finding(findings, "foreign_partition",
						psprintf("partition %s is a foreign table: its changes fail, as with "
								 "PostgreSQL's own apply",
								 name_of_table(lfirst_oid(lc))),
						"replace it with a local table, or do not publish its rows");
	}
}

/* The rows of such a table are elsewhere. */
static void
explain_interception(Findings *findings, Oid relid)
{
	const char *kind = papply_intercepted_as(relid);

	if (kind != NULL)
		add_finding(findings, "intercepted_table",
					psprintf("it is %s: queries do not find applied rows, "
							 "with or without writers", kind),
					"subscribe to an ordinary table with an ENABLE ALWAYS "
					"trigger that writes to this one");
}

/* Report how the rows of an UPDATE or DELETE are found. */
static void
explain_lookup(Findings *findings, Relation rel, const AttrMap *map)
{
	const PapplyTableDescription *description = &findings->description;
	bool		has_identity = false;

	if (OidIsValid(papply_compat_identity_index(rel)))
		return;
	for (int i = 0; i < PAPPLY_DESCRIBED_COLUMNS / 8; i++)
		has_identity |= description->identity[i] != 0;
	if (description->is_known && !description->is_full)
	{
		if (has_identity)
			add_finding(findings, "no_replica_identity",
						"it has neither replica identity nor primary key: UPDATE and DELETE fail",
						"add a primary key on the columns of the publisher's replica identity");
		return;
	}
	if (!OidIsValid(papply_lookup_index_for_rows(rel, map->attnums)))
		add_finding(findings, "no_usable_index",
					description->is_known ?
					"replica identity FULL without usable index: every UPDATE and DELETE reads the whole table" :
					"it has no key and no usable index: every UPDATE and DELETE, if there are any, reads the whole table",
					psprintf("create an index of table %s that begins with a published column, "
							 "preferably a unique one on columns that are NOT NULL",
							 name_of_table(RelationGetRelid(rel))));
}

static bool
is_in_identity(const PapplyTableDescription *description, Relation index)
{
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
	{
		AttrNumber	attnum = index->rd_index->indkey.values[i];

		if (attnum <= PAPPLY_DESCRIBED_COLUMNS && !papply_table_description_has(description->identity, attnum - 1))
			return false;
	}
	return true;
}

/*
 * Report an index whose conflicts the receiver does not foresee.  Counts the
 * unique indexes that it tracks in *tracked.
 */
static void
explain_index(Findings *findings, Relation rel, Relation index, const AttrMap *map, int *tracked)
{
	const char *name = quote_identifier(RelationGetRelationName(index));
	const char *why = papply_row_keys_why_untracked(index, map->attnums);

	if (!index->rd_index->indisunique)
	{
		if (index->rd_index->indisexclusion)
			add_finding(findings, "exclusion_constraint",
						psprintf("exclusion constraint %s is not tracked: transactions that "
								 "conflict in it are tried again", name),
						"none, unless there are many retries");
		return;
	}
	if (why == NULL && (*tracked)++ >= PAPPLY_MAX_UNIQUE_KEYS)
		why = psprintf("is not among the first %d", PAPPLY_MAX_UNIQUE_KEYS);
	if (why != NULL)
		add_finding(findings, "untracked_index",
					psprintf("unique index %s %s and is not tracked: a transaction that takes over "
							 "one of its values may be tried again", name, why),
					"none, unless there are many retries");
	else if (!findings->description.is_full && !is_in_identity(&findings->description, index))
		add_finding(findings, "index_not_in_identity",
					psprintf("unique index %s is not in the replica identity: a transaction that "
							 "takes over one of its values may be tried again", name),
					psprintf("if there are many retries, on the publisher: ALTER TABLE %s REPLICA IDENTITY FULL",
							 name_of_table(RelationGetRelid(rel))));
}

/*
 * Report on the indexes.  Each is locked first, without waiting; returns false
 * if another session has locked one.
 */
static bool
look_at_indexes(Findings *findings, Relation rel, const AttrMap *map)
{
	List	   *indexes = NIL;
	ListCell   *lc;
	bool		is_free = true;
	int			tracked = 0;

	foreach(lc, RelationGetIndexList(rel))
	{
		is_free = ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock);
		if (!is_free)
			break;
		indexes = lappend(indexes, index_open(lfirst_oid(lc), NoLock));
	}
	if (is_free)
	{
		if (!findings->description.is_known)
			assume_identity(rel, &findings->description);
		if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
			explain_lookup(findings, rel, map);
		foreach(lc, indexes)
			explain_index(findings, rel, lfirst(lc), map, &tracked);
	}
	foreach(lc, indexes)
		index_close(lfirst(lc), AccessShareLock);
	return is_free;
}

static void
explain_table(Findings *findings, Relation rel)
{
	PapplyTableDescription *description = &findings->description;
	AttrMap    *map = map_columns(rel, description, true);
	PapplyApplyModeReason reason;

	findings->apply_mode = papply_apply_mode(rel, map, &reason);
	explain_apply_mode(findings, rel, &reason);
	explain_interception(findings, RelationGetRelid(rel));
	explain_sequences(findings, rel, map);
	if (findings->apply_mode == PAPPLY_TABLE_NATIVE)
		return;
	if (!description->is_known && findings->apply_mode == PAPPLY_TABLE_PARALLEL)
		explain_unknown_columns(findings, rel);
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		explain_partitions(findings, rel);
	if (!look_at_indexes(findings, rel, map))
		add_finding(findings, "index_locked",
					"another session has locked an index of it, so not everything is known",
					"query the view again");
}

/*
 * Find out how the table is applied.  Returns false if the table no
 * longer exists.
 */
static bool
find_out(Findings *findings, Oid relid, char state)
{
	Relation	rel;

	if (!ConditionalLockRelationOid(relid, AccessShareLock))
	{
		findings->apply_mode = papply_apply_mode_unlocked(relid);
		add_finding(findings, "locked",
					"another session has locked it, so not everything is known",
					"query the view again");
	}
	else if ((rel = try_relation_open(relid, NoLock)) == NULL)
	{
		UnlockRelationOid(relid, AccessShareLock);
		return false;
	}
	else
	{
		explain_table(findings, rel);
		relation_close(rel, AccessShareLock);
	}
	if (state != SUBREL_STATE_READY)
	{
		findings->apply_mode = PAPPLY_TABLE_NATIVE;
		add_finding(findings, "not_synchronized", "it is not synchronized yet",
					"wait; if it does not begin, see parallel_apply.advice(), or look for errors of its synchronization in the server log");
	}
	return true;
}

static void
set_counts(PapplyRow *row, const uint64 *counts, bool is_counted)
{
	papply_row_int8(row, "inserts", counts[PAPPLY_TABLE_INSERTS], !is_counted);
	papply_row_int8(row, "updates", counts[PAPPLY_TABLE_UPDATES], !is_counted);
	papply_row_int8(row, "deletes", counts[PAPPLY_TABLE_DELETES], !is_counted);
	papply_row_int8(row, "waits", counts[PAPPLY_TABLE_WAITS], !is_counted);
	papply_row_value(row, "wait_time", FLOAT8OID,
					 Float8GetDatum(counts[PAPPLY_TABLE_WAIT_US] / 1000.0), !is_counted);
	papply_row_int8(row, "missing", counts[PAPPLY_TABLE_CONFLICTS + PAPPLY_UPDATE_MISSING] +
					counts[PAPPLY_TABLE_CONFLICTS + PAPPLY_DELETE_MISSING], !is_counted);
	papply_row_int8(row, "retried_lookups", counts[PAPPLY_TABLE_RETRIED_LOOKUPS], !is_counted);
}

static void
put_table(PapplyRow *row, Oid subid, Oid relid, char state)
{
	Findings	findings = {0};
	PapplyTableStatistics statistics = {0};
	const uint64 *counts = statistics.counters;
	bool		is_counted = papply_table_statistics_get(subid, relid, &statistics) ||
	!papply_table_statistics_is_full();

	findings.codes = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	initStringInfo(&findings.reasons);
	initStringInfo(&findings.remedies);
	findings.description = statistics.record.description;
	if (!find_out(&findings, relid, state))
		return;
	papply_row_text(row, "apply_mode", apply_modes[findings.apply_mode]);
	papply_row_value(row, "findings", TEXTARRAYOID,
					 makeArrayResult(findings.codes, CurrentMemoryContext), false);
	papply_row_text(row, "reason", findings.reasons.len > 0 ? findings.reasons.data : NULL);
	papply_row_text(row, "remedy", findings.remedies.len > 0 ? findings.remedies.data : NULL);
	set_counts(row, counts, is_counted);
	papply_row_put(row);
}

/*
 * papply_get_table(subid, relid, sync_state) returns a row for a subscribed table, if the
 * user may see the subscription and the table still exists.
 */
Datum
papply_get_table(PG_FUNCTION_ARGS)
{
	PapplyRow  *row = papply_row_begin(fcinfo);

	if (papply_sql_may_see(PG_GETARG_OID(0)) &&
		SearchSysCacheExists2(SUBSCRIPTIONRELMAP, PG_GETARG_DATUM(1), PG_GETARG_DATUM(0)))
		put_table(row, PG_GETARG_OID(0), PG_GETARG_OID(1), PG_GETARG_CHAR(2));
	return (Datum) 0;
}
