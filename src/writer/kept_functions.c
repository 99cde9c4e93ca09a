/*-------------------------------------------------------------------------
 * kept_functions.c
 *	  Which functions may changes of a table call, apart from its triggers?
 *
 * Runs in a writer.
 *
 * The native loop (PostgreSQL's own apply loop) plans defaults and looks up
 * functions for every row, and checks each time whether they may be called.
 * What a writer keeps (target.c) was planned with functions as they were then,
 * or is the result of one, and the writer was allowed to call them.  So it is
 * dropped when one of them has changed, or when rights may have.
 *
 * Built-in functions are found in the expressions of a table.  A user's
 * function may call any other function, which may have been inlined into the
 * plan, so a table that calls one depends on all functions.  Functions in C,
 * as in extensions, are treated as built-in ones.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/transam.h"
#include "catalog/pg_index.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/partcache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "called_functions.h"
#include "kept_functions.h"

/*
 * Callback of papply_functions_find().  Returns false to continue the search.
 */
static bool
add_function(Oid function, void *context)
{
	PapplyKeptFunctions *functions = context;
	uint32		hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function));
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			language;

	functions->hashes = list_append_unique_int(functions->hashes, (int) hash);
	if (!HeapTupleIsValid(tuple))
		return false;
	language = ((Form_pg_proc) GETSTRUCT(tuple))->prolang;
	functions->has_any |= function >= FirstNormalObjectId &&
		language != INTERNALlanguageId && language != ClanguageId;
	functions->is_restricted |= !heap_attisnull(tuple, Anum_pg_proc_proacl, NULL);
	ReleaseSysCache(tuple);
	return false;
}

static void
add_expression(PapplyKeptFunctions *functions, Node *expr)
{
	(void) papply_functions_find(expr, add_function, functions);
}

/*
 * Add the functions that convert what is sent to values of a type, and that
 * compare its values.
 */
static void
add_functions_of_type(PapplyKeptFunctions *functions, Oid type)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_EQ_OPR);
	Oid			function;
	Oid			param;

	getTypeInputInfo(type, &function, &param);
	(void) add_function(function, functions);
	if (OidIsValid(entry->eq_opr))
		(void) add_function(get_opcode(entry->eq_opr), functions);
}

/*
 * Add the functions of a type.  Built-in types are known to be safe; a user's
 * composite, range or similar type may have any function.
 */
static void
add_type(PapplyKeptFunctions *functions, Oid type)
{
	Oid			element = get_element_type(type);

	if (OidIsValid(element))
		type = element;
	switch (get_typtype(type))
	{
		case TYPTYPE_ENUM:
			break;
		case TYPTYPE_DOMAIN:
			add_expression(functions, (Node *) papply_functions_domain_checks(type));
			add_type(functions, getBaseType(type));
			break;
		case TYPTYPE_BASE:
			if (type >= FirstNormalObjectId)
				add_functions_of_type(functions, type);
			break;
		default:
			functions->has_any |= type >= FirstNormalObjectId;
	}
}

/*
 * Add the functions of the types of all columns, of generated columns, and of
 * the defaults of columns that are not published.
 */
static void
add_columns(PapplyKeptFunctions *functions, Relation rel, const AttrMap *attnums)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		add_type(functions, att->atttypid);
		if (att->attgenerated || (attnums != NULL && attnums->attnums[i] < 0))
			add_expression(functions, build_column_default(rel, i + 1));
	}
}

static void
add_part_of_index(PapplyKeptFunctions *functions, HeapTuple tuple, AttrNumber attnum)
{
	bool		is_null;
	Datum		stored = SysCacheGetAttr(INDEXRELID, tuple, attnum, &is_null);

	if (!is_null)
		add_expression(functions, stringToNode(TextDatumGetCString(stored)));
}

static void
add_index(PapplyKeptFunctions *functions, Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));

	if (!HeapTupleIsValid(tuple))
		return;
	add_part_of_index(functions, tuple, Anum_pg_index_indexprs);
	add_part_of_index(functions, tuple, Anum_pg_index_indpred);
	ReleaseSysCache(tuple);
}

PapplyKeptFunctions
papply_kept_functions_of(Relation rel, const AttrMap *attnums, MemoryContext context)
{
	PapplyKeptFunctions functions = {0};
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	MemoryContext old_context;
	ListCell   *lc;

	add_columns(&functions, rel, attnums);
	for (int i = 0; constr != NULL && i < constr->num_check; i++)
		add_expression(&functions, stringToNode(constr->check[i].ccbin));
	foreach(lc, RelationGetIndexList(rel))
		add_index(&functions, lfirst_oid(lc));
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		add_expression(&functions, (Node *) RelationGetPartitionKey(rel)->partexprs);
	old_context = MemoryContextSwitchTo(context);
	functions.hashes = list_copy(functions.hashes);
	MemoryContextSwitchTo(old_context);
	return functions;
}

bool
papply_kept_functions_concerns(const PapplyKeptFunctions *functions, uint32 hashvalue)
{
	if (functions->has_any)
		return true;
	return functions->hashes != NIL &&
		(hashvalue == 0 || list_member_int(functions->hashes, (int) hashvalue));
}
