/*-------------------------------------------------------------------------
 * called_functions.c
 *	  Search an expression for the functions that it calls.
 *
 * Runs in the receiver, in writers, and in backends that read the views.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_type.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "called_functions.h"

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
 * Read the checks in their stored form.  The type cache would plan them, which
 * calls the user's immutable functions: with the privileges of the current
 * user, possibly without a snapshot, and with errors that end the receiver.
 */
List *
papply_functions_domain_checks(Oid type)
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

static bool
find(Node *node, Search *search)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, search->is_wanted, search->context))
		return true;
	if (IsA(node, NextValueExpr))
		return search->is_wanted(F_NEXTVAL, search->context);
	if (IsA(node, CoerceToDomain) && must_expand(search, node) &&
		find((Node *) papply_functions_domain_checks(((CoerceToDomain *) node)->resulttype), search))
		return true;
	if (IsA(node, FuncExpr))
		return find((Node *) all_arguments(search, (FuncExpr *) node), search);
	return expression_tree_walker(node, find, search);
}

bool
papply_functions_find(Node *expr, check_function_callback is_wanted, void *context)
{
	Search		search = {is_wanted, context};

	return find(expr, &search);
}
