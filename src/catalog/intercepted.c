/*-------------------------------------------------------------------------
 * intercepted.c
 *	  Detect tables whose rows another extension stores elsewhere.
 *
 * Runs in the receiver and in a user's backend.
 *
 * Citus and TimescaleDB distribute the rows of a table to other tables, shards
 * or chunks, when a statement is planned or executed.  Changes are not applied
 * by statements, so their rows remain in the table itself, where queries do
 * not look for them, and there is no error.  PostgreSQL's own apply does the
 * same.  So such a table is applied like any other, but there is a message for
 * the user.
 *
 * The catalogs of these extensions list the tables.  They are read without
 * checking privileges, and nothing else of their contents is shown.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "intercepted.h"

/*
 * Initialize the key for rows whose column has this value.  Return false if
 * the catalog has no such column of this type.
 */
static bool
make_key(ScanKey key, Oid catalog, const char *column, Oid type, RegProcedure equals, Datum value)
{
	AttrNumber	number = get_attnum(catalog, column);

	if (number <= 0 || get_atttype(catalog, number) != type)
		return false;
	ScanKeyInit(key, number, BTEqualStrategyNumber, equals, value);
	return true;
}

/*
 * Return whether the catalog has such a row.  Do not wait if the catalog is
 * locked because the extension is being updated: the session that holds the
 * lock may wait for a writer, which waits for the receiver.  The lock of a
 * catalog that has just been dropped does no harm until the transaction ends.
 */
static bool
has_row(Oid catalog, ScanKey keys, int count)
{
	Relation	rel;
	SysScanDesc scan;
	bool		found;

	if (!ConditionalLockRelationOid(catalog, AccessShareLock))
		return false;
	rel = try_relation_open(catalog, NoLock);
	if (rel == NULL)
		return false;
	scan = systable_beginscan(rel, InvalidOid, false, NULL, count, keys);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	relation_close(rel, AccessShareLock);
	return found;
}

/*
 * This catalog has distributed tables, reference tables, and local ones with a
 * shard.
 */
static bool
is_of_citus(Oid relid)
{
	Oid			catalog = get_relname_relid("pg_dist_partition", PG_CATALOG_NAMESPACE);
	ScanKeyData key;

	return get_rel_relkind(catalog) == RELKIND_RELATION &&
		make_key(&key, catalog, "logicalrelid", REGCLASSOID, F_OIDEQ, ObjectIdGetDatum(relid)) &&
		has_row(catalog, &key, 1);
}

static bool
is_of_timescaledb(Oid relid)
{
	Oid			namespace = get_namespace_oid("_timescaledb_catalog", true);
	Oid			catalog = get_relname_relid("hypertable", namespace);
	char	   *table = get_rel_name(relid);
	char	   *schema = get_namespace_name(get_rel_namespace(relid));
	ScanKeyData keys[2];

	return get_rel_relkind(catalog) == RELKIND_RELATION && table != NULL && schema != NULL &&
		make_key(&keys[0], catalog, "schema_name", NAMEOID, F_NAMEEQ, CStringGetDatum(schema)) &&
		make_key(&keys[1], catalog, "table_name", NAMEOID, F_NAMEEQ, CStringGetDatum(table)) &&
		has_row(catalog, keys, 2);
}

const char *
papply_intercepted_as(Oid relid)
{
	if (is_of_citus(relid))
		return "a table of Citus";
	if (is_of_timescaledb(relid))
		return "a hypertable of TimescaleDB";
	return NULL;
}
