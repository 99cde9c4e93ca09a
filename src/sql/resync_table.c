/*-------------------------------------------------------------------------
 * resync_table.c
 *	  The function that has one table of a subscription copied again.
 *
 * Runs in a user's backend.
 *
 * It sets the table to the state that ALTER SUBSCRIPTION ... REFRESH PUBLICATION gives a new
 * one, with a mark: the copy replaces the rows (receiver/table_copy.c).  From then on
 * the server's own table synchronization does all.  Apply leaves out changes of the
 * table until the copy has caught up with it, so each change is in the copy, or is applied
 * after it, once.  This holds if nothing applies a change of the table later on because it
 * has taken it for a table that is synchronized:
 *
 * - The table is locked against changes, so every local transaction that has changed it has
 *   ended when the state changes, and the others see the new state when they get the lock.
 *
 * - The server's own apply does not read the state again of a table that it knows to be
 *   synchronized.  So with the table locked, the apply worker of the subscription is ended,
 *   with its writers.  The next one knows no table, and cannot get to know this one before
 *   the lock is released.
 *
 * - A worker that has synchronized the table before may be about to exit.  The apply worker
 *   would take its final state for that of the new copy.  So it is ended, too.
 *
 * Apply confirms transactions that changed nothing but this table without having written
 * anything.  So the commit of the new state must be on disk before others see it.
 *
 * With two_phase enabled, the server does not copy tables, since a transaction that is
 * prepared before the copy and committed after it would be in neither.
 *
 * Locks are taken in the order of the server: subscription, table, pg_subscription_rel.
 * The session waits for the end of workers while it holds the first two.  The workers are
 * interrupted wherever they wait for a lock, so they end.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/heap.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_subscription_rel.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "sql_common.h"
#include "table_copy.h"

PG_FUNCTION_INFO_V1(papply_resync_table);

/* The server refuses ALTER SUBSCRIPTION ... REFRESH PUBLICATION then, too. */
static void
refuse_two_phase(Oid subid)
{
	HeapTuple	tuple = SearchSysCache1(SUBSCRIPTIONOID, ObjectIdGetDatum(subid));
	bool		is_enabled;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for subscription %u", subid);
	is_enabled = ((Form_pg_subscription) GETSTRUCT(tuple))->subtwophasestate ==
		LOGICALREP_TWOPHASE_STATE_ENABLED;
	ReleaseSysCache(tuple);
	if (is_enabled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("tables of subscription \"%s\" cannot be copied while two_phase is enabled",
						get_subscription_name(subid, false)),
				 errhint("Use ALTER SUBSCRIPTION ... SET (two_phase = false) (since PostgreSQL 18), or DROP SUBSCRIPTION and CREATE SUBSCRIPTION.")));
}

/*
 * Throw an error if another subscription contains the table, a partition of it, or what it
 * is a partition of: its rows would be removed, too.
 */
static void
refuse_shared(Oid subid, Oid relid)
{
	List	   *tables = lappend_oid(get_partition_ancestors(relid), relid);
	Relation	rel = table_open(SubscriptionRelRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	if (get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE)
		tables = list_concat(tables, find_all_inheritors(relid, NoLock, NULL));
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_subscription_rel row = (Form_pg_subscription_rel) GETSTRUCT(tuple);

		if (row->srsubid != subid && list_member_oid(tables, row->srrelid))
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("table \"%s\" is part of several subscriptions", get_rel_name(relid)),
					 errdetail("Rows of subscription \"%s\" would be removed.",
							   get_subscription_name(row->srsubid, false))));
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
}

/*
 * Throw an error unless the user has this right on the table and may have it copied, and it
 * is not being copied.
 */
static void
check_table(Oid subid, Oid relid, AclMode right)
{
	char	   *name = get_rel_name(relid);
	XLogRecPtr	lsn;
	char		state = GetSubscriptionRelState(subid, relid, &lsn);
	AclResult	acl_result;

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (state == SUBREL_STATE_UNKNOWN)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("relation \"%s\" is not part of subscription \"%s\"", name,
						get_subscription_name(subid, false)),
				 errhint("See \"%s\" for what is: a partitioned table, or its partitions.",
						 PAPPLY_NAME ".tables")));
	if (get_rel_relkind(relid) == RELKIND_SEQUENCE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", name),
				 errhint("Use ALTER SUBSCRIPTION ... REFRESH SEQUENCES.")));
	acl_result = pg_class_aclcheck(relid, GetUserId(), right);
	if (acl_result != ACLCHECK_OK)
		aclcheck_error(acl_result, get_relkind_objtype(get_rel_relkind(relid)), name);
	if (state != SUBREL_STATE_READY)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" is being synchronized", name),
				 errhint("Wait until its \"sync_state\" in \"%s\" is \"ready\".",
						 PAPPLY_NAME ".tables")));
	refuse_shared(subid, relid);
}

/* The error of TRUNCATE, now and not from the worker */
static void
refuse_referenced(Oid relid)
{
	List	   *tables = get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ?
	find_all_inheritors(relid, NoLock, NULL) : list_make1_oid(relid);

	if (heap_truncate_find_FKs(tables) != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot truncate table \"%s\", which a foreign key references", get_rel_name(relid)),
				 errhint("Have its rows deleted instead: omit \"truncate\".")));
}

/*
 * papply_resync_table(subscription, table, truncate) has the table copied again, from the
 * commit on.
 */
Datum
papply_resync_table(PG_FUNCTION_ARGS)
{
	Oid			subid = papply_sql_change_subscription(fcinfo, 0, "resync_table()");
	Oid			relid;
	bool		truncates = !PG_ARGISNULL(2) && PG_GETARG_BOOL(2);
	AclMode		right = truncates ? ACL_TRUNCATE : ACL_DELETE;

	papply_sql_refuse_null(fcinfo, 1, "relation");
	relid = PG_GETARG_OID(1);
	refuse_two_phase(subid);
	check_table(subid, relid, right);	/* users without rights must not lock
										 * it */
	LockRelationOid(relid, ShareRowExclusiveLock);
	check_table(subid, relid, right);	/* it may have changed meanwhile */
	if (truncates)
		refuse_referenced(relid);

	papply_compat_start_leader_at_commit(subid);	/* or as soon as it is
													 * ended */
	papply_compat_stop_leader(subid);
	papply_compat_stop_sync_worker(subid, relid);
	papply_compat_set_table_state(subid, relid, SUBREL_STATE_INIT,
								  truncates ? PAPPLY_TABLE_COPY_TRUNCATES : PAPPLY_TABLE_COPY_REPLACES);
	ForceSyncCommit();
	PG_RETURN_VOID();
}
