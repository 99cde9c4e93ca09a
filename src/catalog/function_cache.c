/*-------------------------------------------------------------------------
 * function_cache.c
 *	  Which functions and types may changes of a table use, apart from its
 *	  triggers?
 *
 * Runs in the receiver, which only asks whether there is user code, in writers,
 * and in backends that read the views.
 *
 * The core apply loop plans defaults and looks up functions for every row, and
 * checks each time whether they may be called.  What a writer keeps (target.c)
 * was planned with functions as they were then, or is the result of one, and
 * the writer was allowed to call them.  So it is dropped when one of them has
 * changed, or when rights may have.
 *
 * Functions are found in the expressions of a table, and in the families of its
 * operator classes.  A user's function may call any other function, which may
 * have been inlined into the plan, so a table that calls one depends on all
 * functions.  Functions in C, as in extensions, are treated as built-in ones.
 *
 * The same is true of domains, enums and composite types: they can be altered
 * while a table that uses them is locked.  They may be nested in arrays,
 * ranges and each other.  Those that a user's function uses inside are not
 * known, because most changes of types belong to temporary tables.
 *
 * A value of regclass or a similar type is the OID of an object that had a
 * name when the value was read, so a change of any such object counts.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/transam.h"
#include "catalog/partition.h"
#include "catalog/pg_amop.h"
#include "catalog/pg_amproc.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "catalog/pg_language.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteHandler.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"

#include "function_cache.h"

/*** functions that an expression calls ***/

typedef struct Search
{
	check_function_callback is_wanted;
	void	   *context;
	List	   *expanded;		/* nodes whose checks or defaults are searched */
} Search;

/* Add the checks of one domain, without those of its base type. */
static List *
add_domain_checks(List *checks, Oid type)
{
	Relation	catalog = table_open(ConstraintRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_constraint_contypid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(type));
	scan = systable_beginscan(catalog, ConstraintTypidIndexId, true, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		is_null;
		Datum		expr = heap_getattr(tuple, Anum_pg_constraint_conbin,
										RelationGetDescr(catalog), &is_null);

		if (!is_null)
			checks = lappend(checks, stringToNode(TextDatumGetCString(expr)));
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return checks;
}

/*
 * Return the CHECK constraints of a type, if it is a domain, in their stored
 * form.  The type cache would plan them, which
 * calls the user's immutable functions: with the privileges of the current
 * user, possibly without a snapshot, and with errors that end the receiver.
 */
static List *
domain_checks(Oid type)
{
	List	   *checks = NIL;

	while (get_typtype(type) == TYPTYPE_DOMAIN)
	{
		HeapTuple	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));

		checks = add_domain_checks(checks, type);
		if (!HeapTupleIsValid(tuple))
			break;
		type = ((Form_pg_type) GETSTRUCT(tuple))->typbasetype;
		ReleaseSysCache(tuple);
	}
	return checks;
}

/*
 * Must what is not stored with the node be searched?  A CHECK of a domain may
 * convert a value to that domain, and a default of a function may call it.
 * The number of stored expressions is finite, so the search ends.
 */
static bool
must_expand(Search *search, void *node)
{
	if (list_member(search->expanded, node))
		return false;
	search->expanded = lappend(search->expanded, node);
	return true;
}

/*
 * Return the arguments of a call, including the defaults, which are not stored
 * with it.
 */
static List *
all_arguments(Search *search, FuncExpr *call)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(call->funcid));
	List	   *arguments = call->args;

	if (!HeapTupleIsValid(tuple))
		return arguments;
	arguments = expand_function_arguments(arguments, false, call->funcresulttype, tuple);
	ReleaseSysCache(tuple);
	return list_length(arguments) == list_length(call->args) || must_expand(search, call) ?
		arguments : call->args;
}

/* Is it current_user or one of its like? */
static bool
is_user_name(Node *node)
{
	if (!IsA(node, SQLValueFunction))
		return false;
	switch (((SQLValueFunction *) node)->op)
	{
		case SVFOP_CURRENT_ROLE:
		case SVFOP_CURRENT_USER:
		case SVFOP_USER:
		case SVFOP_SESSION_USER:
			return true;
		default:
			return false;
	}
}

static bool
find(Node *node, Search *search)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, search->is_wanted, search->context))
		return true;
	if (IsA(node, NextValueExpr))
		return search->is_wanted(F_NEXTVAL, search->context);
	if (is_user_name(node))
		return search->is_wanted(F_CURRENT_USER, search->context);
	if ((IsA(node, CoerceToDomain) || papply_compat_is_json_expr(node)) &&
		must_expand(search, node) &&
		find((Node *) domain_checks(exprType(node)), search))
		return true;
	if (IsA(node, FuncExpr))
		return find((Node *) all_arguments(search, (FuncExpr *) node), search);
	return expression_tree_walker(node, find, search);
}

bool
papply_function_cache_find(Node *expr, check_function_callback is_wanted, void *context)
{
	Search		search = {is_wanted, context};

	return find(expr, &search);
}

/*** functions and types of a table ***/

/*
 * Callback of papply_function_cache_find().  Returns false to continue the search.
 */
static bool
add_function(Oid function, void *context)
{
	PapplyFunctionCache *functions = context;
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

/* Does the function return the name of a role, which can be renamed? */
static bool
names_role(Oid function)
{
	return function == F_CURRENT_USER || function == F_SESSION_USER ||
		function == F_GETPGUSERNAME || function == F_PG_GET_USERBYID;
}

/*
 * The same for a function that an expression calls.  Extensions may have left
 * the functions of their types volatile, which is the default.  A type whose
 * name is in a text may have any function, for example in its constraints.
 */
static bool
add_called_function(Oid function, void *context)
{
	PapplyFunctionCache *functions = context;

	functions->has_user_code |= func_volatile(function) == PROVOLATILE_VOLATILE;
	functions->has_role_names |= names_role(function);
	functions->has_any |= papply_compat_takes_type_name(function);
	return add_function(function, context);
}

static void add_type(PapplyFunctionCache *functions, Oid type);

/* Add the types that values are converted to in an expression. */
static bool
add_types_of(Node *node, void *context)
{
	if (node == NULL)
		return false;
	switch (nodeTag(node))
	{
		case T_Const:
		case T_FuncExpr:
		case T_RowExpr:
		case T_CoerceToDomain:
		case T_CoerceViaIO:
		case T_ConvertRowtypeExpr:
			add_type(context, exprType(node));
			break;
		default:
			if (papply_compat_is_json_expr(node))
				add_type(context, exprType(node));
			break;
	}
	return expression_tree_walker(node, add_types_of, context);
}

static void
add_expression(PapplyFunctionCache *functions, Node *expr)
{
	(void) papply_function_cache_find(expr, add_called_function, functions);
	(void) add_types_of(expr, functions);
}

/*
 * Add the support functions and the operators of a family of operator classes.
 * There may be none.
 */
static void
add_operator_family(PapplyFunctionCache *functions, Oid family)
{
	CatCList   *procs = SearchSysCacheList1(AMPROCNUM, ObjectIdGetDatum(family));
	CatCList   *operators = SearchSysCacheList1(AMOPSTRATEGY, ObjectIdGetDatum(family));

	for (int i = 0; i < procs->n_members; i++)
	{
		HeapTuple	tuple = &procs->members[i]->tuple;

		(void) add_function(((Form_pg_amproc) GETSTRUCT(tuple))->amproc, functions);
	}
	for (int i = 0; i < operators->n_members; i++)
	{
		HeapTuple	tuple = &operators->members[i]->tuple;

		(void) add_function(get_opcode(((Form_pg_amop) GETSTRUCT(tuple))->amopopr), functions);
	}
	ReleaseSysCacheList(procs);
	ReleaseSysCacheList(operators);
}

/*
 * Add the functions that convert what is sent to values of a type, and that
 * compare its values, also where these are parts of others.
 */
static void
add_functions_of_type(PapplyFunctionCache *functions, Oid type)
{
	TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY |
											  TYPECACHE_HASH_OPFAMILY);
	Oid			function;
	Oid			param;

	getTypeInputInfo(type, &function, &param);
	(void) add_function(function, functions);
	add_operator_family(functions, entry->btree_opf);
	add_operator_family(functions, entry->hash_opf);
}

/* Does a type store an object whose name its input function looks up? */
static bool
names_object(Oid type)
{
	switch (type)
	{
		case REGCLASSOID:
		case REGCOLLATIONOID:
		case REGCONFIGOID:
		case REGDATABASEOID:
		case REGDICTIONARYOID:
		case REGNAMESPACEOID:
		case REGOPERATOROID:
		case REGOPEROID:
		case REGPROCEDUREOID:
		case REGPROCOID:
		case REGROLEOID:
		case REGTYPEOID:
		case ACLITEMOID:
			return OidIsValid(type);
		default:
			return false;
	}
}

static void
add_composite(PapplyFunctionCache *functions, Oid type, Oid relid)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(type, -1);

	functions->composites = lappend_oid(functions->composites, relid);
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped)
			add_type(functions, TupleDescAttr(desc, i)->atttypid);
	ReleaseTupleDesc(desc);
}

static void
add_parts_of_type(PapplyFunctionCache *functions, const FormData_pg_type *form)
{
	switch (form->typtype)
	{
		case TYPTYPE_ENUM:
			functions->has_enums = true;
			add_functions_of_type(functions, form->oid);
			break;
		case TYPTYPE_DOMAIN:
			add_expression(functions, (Node *) domain_checks(form->oid));
			add_type(functions, form->typbasetype);
			break;
		case TYPTYPE_COMPOSITE:
			add_composite(functions, form->oid, form->typrelid);
			add_functions_of_type(functions, form->oid);
			break;
		case TYPTYPE_RANGE:
			functions->has_any = true;	/* such as its canonical function */
			add_type(functions, get_range_subtype(form->oid));
			break;
		case TYPTYPE_MULTIRANGE:
			add_type(functions, get_multirange_range(form->oid));
			break;
		case TYPTYPE_BASE:
			if (OidIsValid(get_element_type(form->oid)))
				add_type(functions, form->typelem);
			else
				add_functions_of_type(functions, form->oid);
			break;
	}
}

/*
 * Add a type with all that it consists of, and the functions of these.  Types
 * that cannot be altered are known to be safe.
 */
static void
add_type(PapplyFunctionCache *functions, Oid type)
{
	HeapTuple	tuple;

	functions->has_object_names |= names_object(type) || names_object(get_element_type(type));
	if (type < FirstUnpinnedObjectId || list_member_oid(functions->types, type))
		return;
	functions->types = lappend_oid(functions->types, type);
	tuple = SearchSysCache1(TYPEOID, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tuple))
		return;
	add_parts_of_type(functions, (Form_pg_type) GETSTRUCT(tuple));
	ReleaseSysCache(tuple);
}

/*
 * Add the functions of the types of all columns, of generated columns, and of
 * the defaults of columns that are not published.
 */
static void
add_columns(PapplyFunctionCache *functions, Relation rel, const AttrMap *attnums)
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

/*
 * Add the expressions in a column of the catalog's row of a relation, if there
 * are any.  The relation cache would plan them, which calls immutable functions.
 */
static void
add_stored(PapplyFunctionCache *functions, int cacheid, Oid relid, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache1(cacheid, ObjectIdGetDatum(relid));
	bool		is_null;
	Datum		stored;

	if (!HeapTupleIsValid(tuple))
		return;
	stored = SysCacheGetAttr(cacheid, tuple, attnum, &is_null);
	if (!is_null)
		add_expression(functions, stringToNode(TextDatumGetCString(stored)));
	ReleaseSysCache(tuple);
}

/* Add the functions of an operator class that is not one of the server's own. */
static void
add_operator_class(PapplyFunctionCache *functions, Oid opclass)
{
	HeapTuple	tuple;

	if (opclass < FirstNormalObjectId)
		return;
	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(opclass));
	if (!HeapTupleIsValid(tuple))
		return;
	add_operator_family(functions, ((Form_pg_opclass) GETSTRUCT(tuple))->opcfamily);
	ReleaseSysCache(tuple);
}

/* Do what add_stored() does for the operator classes in a column. */
static void
add_operator_classes(PapplyFunctionCache *functions, int cacheid, Oid relid, AttrNumber attnum)
{
	HeapTuple	tuple = SearchSysCache1(cacheid, ObjectIdGetDatum(relid));
	bool		is_null;
	oidvector  *classes;

	if (!HeapTupleIsValid(tuple))
		return;
	classes = (oidvector *) DatumGetPointer(SysCacheGetAttr(cacheid, tuple, attnum, &is_null));
	for (int i = 0; i < classes->dim1; i++)
		add_operator_class(functions, classes->values[i]);
	ReleaseSysCache(tuple);
}

static void
add_indexes(PapplyFunctionCache *functions, Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		add_stored(functions, INDEXRELID, lfirst_oid(lc), Anum_pg_index_indexprs);
		add_stored(functions, INDEXRELID, lfirst_oid(lc), Anum_pg_index_indpred);
		add_operator_classes(functions, INDEXRELID, lfirst_oid(lc), Anum_pg_index_indclass);
	}
}

/*
 * Add the functions of the partition keys that the server computes for a row:
 * of the table, and of those that it is a partition of, since they are in its
 * partition constraint.
 */
static void
add_partition_keys(PapplyFunctionCache *functions, Relation rel)
{
	List	   *tables = NIL;
	ListCell   *lc;

	if (rel->rd_rel->relispartition)
		tables = get_partition_ancestors(RelationGetRelid(rel));
	if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
		tables = lappend_oid(tables, RelationGetRelid(rel));
	foreach(lc, tables)
	{
		add_stored(functions, PARTRELID, lfirst_oid(lc), Anum_pg_partitioned_table_partexprs);
		add_operator_classes(functions, PARTRELID, lfirst_oid(lc),
							 Anum_pg_partitioned_table_partclass);
	}
}

PapplyFunctionCache
papply_function_cache_of(Relation rel, const AttrMap *attnums, MemoryContext context)
{
	PapplyFunctionCache functions = {0};
	TupleConstr *constr = RelationGetDescr(rel)->constr;
	MemoryContext old_context;

	add_columns(&functions, rel, attnums);
	for (int i = 0; constr != NULL && i < constr->num_check; i++)
		add_expression(&functions, stringToNode(constr->check[i].ccbin));
	add_indexes(&functions, rel);
	add_partition_keys(&functions, rel);
	functions.has_user_code |= functions.has_any;
	old_context = MemoryContextSwitchTo(context);
	functions.hashes = list_copy(functions.hashes);
	functions.types = list_copy(functions.types);
	functions.composites = list_copy(functions.composites);
	MemoryContextSwitchTo(old_context);
	return functions;
}

void
papply_function_cache_watch(SyscacheCallbackFunction callback)
{
	static const int caches[] = {
		PROCOID,
		AUTHOID,
		AUTHMEMROLEMEM,
		DATABASEOID,			/* its owner has a role: see rights.c */
		TSCONFIGOID,
		TSCONFIGMAP,
		TSDICTOID,
		RELOID,
		OPEROID,
		COLLOID,
		NAMESPACEOID,
		TYPEOID,
		ENUMOID
	};

	for (int i = 0; i < lengthof(caches); i++)
		CacheRegisterSyscacheCallback(caches[i], callback, (Datum) 0);
}

/* Computing a hash needs no catalog, so a callback of invalidations may call this. */
static bool
uses_type(const PapplyFunctionCache *functions, uint32 hashvalue)
{
	ListCell   *lc;

	foreach(lc, functions->types)
		if (hashvalue == 0 ||
			GetSysCacheHashValue1(TYPEOID, ObjectIdGetDatum(lfirst_oid(lc))) == hashvalue)
		return true;
	return false;
}

bool
papply_function_cache_concerns(const PapplyFunctionCache *functions, int cacheid,
							   uint32 hashvalue)
{
	if (functions->has_object_names)
		return true;
	switch (cacheid)
	{
		case PROCOID:
			return functions->has_any ||
				(hashvalue == 0 ? functions->hashes != NIL :
				 list_member_int(functions->hashes, (int) hashvalue));
		case TSCONFIGOID:
		case TSCONFIGMAP:
		case TSDICTOID:			/* any function may use it */
			return functions->has_any || functions->hashes != NIL;
		case AUTHOID:
		case AUTHMEMROLEMEM:
		case DATABASEOID:		/* the right to call a function, or a name */
			return functions->has_any || functions->is_restricted || functions->has_role_names;
		case TYPEOID:
			return uses_type(functions, hashvalue);
		case ENUMOID:
			return functions->has_any || functions->has_enums;
		default:				/* only names of objects */
			return false;
	}
}
