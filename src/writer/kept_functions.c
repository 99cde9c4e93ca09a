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

typedef struct Collection
{
	PapplyKeptFunctions functions;
	MemoryContext context;
} Collection;

static void
look_at_function(PapplyKeptFunctions *functions, Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Oid			language;

	if (!HeapTupleIsValid(tuple))
		return;
	language = ((Form_pg_proc) GETSTRUCT(tuple))->prolang;
	functions->has_any |= function >= FirstNormalObjectId &&
		language != INTERNALlanguageId && language != ClanguageId;
	functions->is_restricted |= !heap_attisnull(tuple, Anum_pg_proc_proacl, NULL);
	ReleaseSysCache(tuple);
}

/*
 * Callback of papply_functions_find().  Returns false to continue the search.
 */
static bool
add_function(Oid function, void *context)
{
	Collection *collection = context;
	MemoryContext old_context = MemoryContextSwitchTo(collection->context);
	uint32		hash = GetSysCacheHashValue1(PROCOID, ObjectIdGetDatum(function));

	look_at_function(&collection->functions, function);
	collection->functions.hashes =
		list_append_unique_int(collection->functions.hashes, (int) hash);
	MemoryContextSwitchTo(old_context);
	return false;
}

static void
add_expression(Collection *collection, Node *expr)
{
	(void) papply_functions_find(expr, add_function, collection);
}

/*
 * Add the functions that convert what is sent to values of a type, and that
 * compare its values.
 */
static void
add_functions_of_type(Collection *collection, Oid type)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_EQ_OPR);
	Oid			function;
	Oid			param;

	getTypeInputInfo(type, &function, &param);
	(void) add_function(function, collection);
	if (OidIsValid(entry->eq_opr))
		(void) add_function(get_opcode(entry->eq_opr), collection);
}

/*
 * Add the functions of a type.  Built-in types are known to be safe; a user's
 * composite, range or similar type may have any function.
 */
static void
add_type(Collection *collection, Oid type)
{
	Oid			element = get_element_type(type);

	if (OidIsValid(element))
		type = element;
	switch (get_typtype(type))
	{
		case TYPTYPE_ENUM:
			break;
		case TYPTYPE_DOMAIN:
			add_expression(collection, (Node *) papply_functions_domain_checks(type));
			add_type(collection, getBaseType(type));
			break;
		case TYPTYPE_BASE:
			if (type >= FirstNormalObjectId)
				add_functions_of_type(collection, type);
			break;
		default:
			collection->functions.has_any |= type >= FirstNormalObjectId;
	}
}

static void
add_columns(Collection *collection, Relation rel, const AttrMap *attnums)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(desc, i);

		if (att->attisdropped)
			continue;
		add_type(collection, att->atttypid);
		if (attnums != NULL && attnums->attnums[i] < 0 && !att->attgenerated)
			add_expression(collection, build_column_default(rel, i + 1));
	}
}

static void
add_constraints(Collection *collection, const TupleConstr *constr)
{
	for (int i = 0; i < constr->num_check; i++)
		add_expression(collection, stringToNode(constr->check[i].ccbin));
}

/* Add those of generated columns.  add_columns() has added defaults. */
static void
add_generated(Collection *collection, TupleDesc desc)
{
	for (int i = 0; i < desc->constr->num_defval; i++)
		if (TupleDescAttr(desc, desc->constr->defval[i].adnum - 1)->attgenerated)
			add_expression(collection, stringToNode(desc->constr->defval[i].adbin));
}

static void
add_part_of_index(Collection *collection, HeapTuple tuple, AttrNumber attnum)
{
	bool		is_null;
	Datum		stored = SysCacheGetAttr(INDEXRELID, tuple, attnum, &is_null);

	if (!is_null)
		add_expression(collection, stringToNode(TextDatumGetCString(stored)));
}

static void
add_index(Collection *collection, Oid index)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));

	if (!HeapTupleIsValid(tuple))
		return;
	add_part_of_index(collection, tuple, Anum_pg_index_indexprs);
	add_part_of_index(collection, tuple, Anum_pg_index_indpred);
	ReleaseSysCache(tuple);
}

static void
add_indexes(Collection *collection, Relation rel)
{
	List	   *indexes = RelationGetIndexList(rel);
	ListCell   *lc;

	foreach(lc, indexes)
		add_index(collection, lfirst_oid(lc));
	list_free(indexes);
}

PapplyKeptFunctions
papply_kept_functions_of(Relation rel, const AttrMap *attnums, MemoryContext context)
{
	Collection	collection = {{0}, context};

	add_columns(&collection, rel, attnums);
	if (RelationGetDescr(rel)->constr != NULL)
	{
		add_constraints(&collection, RelationGetDescr(rel)->constr);
		add_generated(&collection, RelationGetDescr(rel));
	}
	add_indexes(&collection, rel);
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		add_expression(&collection, (Node *) RelationGetPartitionKey(rel)->partexprs);
	return collection.functions;
}

bool
papply_kept_functions_concerns(const PapplyKeptFunctions *functions, uint32 hashvalue)
{
	if (functions->has_any)
		return true;
	return functions->hashes != NIL &&
		(hashvalue == 0 || list_member_int(functions->hashes, (int) hashvalue));
}
