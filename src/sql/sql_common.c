/*-------------------------------------------------------------------------
 * sql_common.c
 *	  Arguments of SQL functions.
 *
 * Runs in a user's backend.
 *
 * One catalog has the subscriptions of all databases, but the functions accept
 * only those of the current one, where their tables and groups are.
 *
 * A function that changes the options of a subscription locks it as SECURITY
 * LABEL does.  This does not block table synchronization and the apply worker.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#include "slots.h"
#include "sql_common.h"
#include "subscription_options.h"

PG_FUNCTION_INFO_V1(papply_get_visibility);
PG_FUNCTION_INFO_V1(papply_get_data_visibility);

void
papply_sql_refuse_null(FunctionCallInfo fcinfo, int argument, const char *what)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

void
papply_sql_begin_procedure(FunctionCallInfo fcinfo, const char *procedure)
{
	PreventCommandIfReadOnly(procedure);
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) ||
		((CallContext *) fcinfo->context)->atomic ||
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", procedure)));
}

const char *
papply_sql_get_group_name(FunctionCallInfo fcinfo)
{
	papply_sql_refuse_null(fcinfo, 0, "group name");
	return NameStr(*PG_GETARG_NAME(0));
}

int
papply_sql_get_writers(FunctionCallInfo fcinfo, int argument)
{
	int			writers;

	if (PG_ARGISNULL(argument))
		return 0;
	writers = PG_GETARG_INT32(argument);
	if (writers < 1 || writers > PAPPLY_MAX_WRITERS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("number of writers must be between %d and %d",
						1, PAPPLY_MAX_WRITERS)));
	if (writers > papply_max_writers_per_subscription)
		ereport(NOTICE,
				(errmsg("number of writers is limited to %d by \"%s\"",
						papply_max_writers_per_subscription,
						PAPPLY_NAME ".max_writers_per_subscription")));
	return writers;
}

ForeignServer *
papply_sql_get_group(const char *name)
{
	ForeignServer *group = papply_group_find(name);

	if (group == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("group \"%s\" does not exist", name),
				 errhint("Use %s to create it.", PAPPLY_NAME ".create_group()")));
	return group;
}

static bool
exists_elsewhere(const char *name)
{
	Relation	rel = table_open(SubscriptionRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	bool		exists;

	ScanKeyInit(&key, Anum_pg_subscription_subname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(name));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	exists = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return exists;
}

/*
 * Return the OID of a subscription of this database, or throw.  Unlike
 * get_subscription_oid(), the error reports a subscription of another database
 * with this name.
 */
Oid
papply_sql_get_subscription(FunctionCallInfo fcinfo, int argument)
{
	const char *name;
	Oid			subid;

	papply_sql_refuse_null(fcinfo, argument, "subscription name");
	name = NameStr(*PG_GETARG_NAME(argument));
	subid = get_subscription_oid(name, true);
	if (!OidIsValid(subid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("subscription \"%s\" does not exist", name),
				 exists_elsewhere(name) ?
				 errhint("Another database has a subscription of that name: connect to it.") : 0));
	return subid;
}

Oid
papply_sql_change_subscription(FunctionCallInfo fcinfo, int argument, const char *function)
{
	Oid			subid;
	Oid			locked;

	PreventCommandIfReadOnly(function);
	subid = papply_sql_get_subscription(fcinfo, argument);
	do
	{
		papply_sql_check_owner(subid);
		locked = subid;
		LockSharedObject(SubscriptionRelationId, locked, 0, ShareUpdateExclusiveLock);
		subid = papply_sql_get_subscription(fcinfo, argument);	/* may differ */
	} while (subid != locked);
	papply_sql_check_owner(subid);
	return subid;
}

bool
papply_sql_may_see(Oid subid)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		(SearchSysCacheExists1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid)) &&
		 papply_compat_is_owner(SubscriptionRelationId, subid));
}

void
papply_sql_check_may_see(Oid subid)
{
	char	   *name = get_subscription_name(subid, true);

	if (!papply_sql_may_see(subid))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_SUBSCRIPTION,
					   name != NULL ? name : psprintf("%u", subid));
}

List *
papply_sql_visible_subscriptions(void)
{
	List	   *visible = NIL;
	ListCell   *cell;

	foreach(cell, papply_slots_subscriptions())
	{
		Oid			subid = lfirst_oid(cell);

		if (SearchSysCacheExists1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid)) &&
			papply_sql_may_see(subid))
			visible = lappend_oid(visible, subid);
	}
	return visible;
}

/* papply_get_visibility(subid) is papply_sql_may_see() for the views. */
Datum
papply_get_visibility(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(papply_sql_may_see(PG_GETARG_OID(0)));
}

void
papply_sql_check_owner(Oid subid)
{
	if (!papply_compat_is_owner(SubscriptionRelationId, subid))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_SUBSCRIPTION,
					   get_subscription_name(subid, false));
}

Oid
papply_sql_find_table(const char *schema, const char *name)
{
	Oid			namespace = get_namespace_oid(schema, true);

	return OidIsValid(namespace) ? get_relname_relid(name, namespace) : InvalidOid;
}

bool
papply_sql_may_read(Oid relid)
{
	Oid			user = GetUserId();
	bool		is_missing = false;

	if (!OidIsValid(relid))
		return superuser();

	/* from 17 on, the second function throws an error if there is no table */
	if (pg_class_aclcheck_ext(relid, user, ACL_SELECT, &is_missing) != ACLCHECK_OK &&
		(is_missing ||
		 pg_attribute_aclcheck_all(relid, user, ACL_SELECT, ACLMASK_ALL) != ACLCHECK_OK))
		return false;
	return check_enable_rls(relid, user, true) != RLS_ENABLED;
}

/* Does the subscription contain the table, or one that it is a partition of? */
static bool
is_subscribed(Oid subid, Oid relid)
{
	ListCell   *cell;

	foreach(cell, lappend_oid(get_partition_ancestors(relid), relid))
		if (SearchSysCacheExists2(SUBSCRIPTIONRELMAP, ObjectIdGetDatum(lfirst_oid(cell)),
								  ObjectIdGetDatum(subid)))
		return true;
	return false;
}

bool
papply_sql_may_see_data(Oid subid, const char *schema, const char *name)
{
	Oid			relid = papply_sql_find_table(schema, name);

	return papply_sql_may_read(is_subscribed(subid, relid) ? relid : InvalidOid);
}

/*
 * papply_get_data_visibility(subid, schemaname, relname) is that for the views.  The
 * names are NULL if the table is not known.
 */
Datum
papply_get_data_visibility(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		PG_RETURN_BOOL(papply_sql_may_read(InvalidOid));
	PG_RETURN_BOOL(papply_sql_may_see_data(PG_GETARG_OID(0), NameStr(*PG_GETARG_NAME(1)),
										   NameStr(*PG_GETARG_NAME(2))));
}
