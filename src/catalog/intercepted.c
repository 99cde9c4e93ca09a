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

#include "apply_mode.h"

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"


/* A column must have this value. */
typedef struct Condition
{
	const char *column;
	Oid			type;
	RegProcedure equals;
	Datum		value;
} Condition;

#define MAX_CONDITIONS 2

/*
 * Initialize a key for each condition.  Return false if the catalog does not
 * have such columns.
 */
static bool
make_keys(ScanKey keys, Relation catalog, const Condition *conditions, int count)
{
	TupleDesc	desc = RelationGetDescr(catalog);

	Assert(count <= MAX_CONDITIONS);
	for (int i = 0; i < count; i++)
	{
		int			number = SPI_fnumber(desc, conditions[i].column);

		if (number <= 0 || TupleDescAttr(desc, number - 1)->atttypid != conditions[i].type)
			return false;
		ScanKeyInit(&keys[i], number, BTEqualStrategyNumber, conditions[i].equals,
					conditions[i].value);
	}
	return catalog->rd_rel->relkind == RELKIND_RELATION;
}

static bool
belongs_to(Oid catalog, const char *extension)
{
	Oid			owner = getExtensionOfObject(RelationRelationId, catalog);

	return OidIsValid(owner) && owner == get_extension_oid(extension, true);
}

/*
 * Return whether the catalog of this extension has such a row.  Users can make
 * tables of the same name, which have no effect and are neither locked nor
 * read: they may be large.
 *
 * Do not wait if the catalog is locked because the extension is being updated:
 * the session that holds the lock may wait for a writer, which waits for the
 * receiver.  The lock of a catalog that has just been dropped does no harm
 * until the transaction ends.
 */
static bool
has_row(Oid catalog, const char *extension, const Condition *conditions, int count)
{
	Relation	rel;
	ScanKeyData keys[MAX_CONDITIONS];
	bool		found = false;

	if (!OidIsValid(catalog) || !belongs_to(catalog, extension) ||
		!ConditionalLockRelationOid(catalog, AccessShareLock))
		return false;
	rel = try_relation_open(catalog, NoLock);
	if (rel == NULL)
		return false;
	if (make_keys(keys, rel, conditions, count))
	{
		SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, count, keys);

		found = HeapTupleIsValid(systable_getnext(scan));
		systable_endscan(scan);
	}
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
	Condition	is_table = {"logicalrelid", REGCLASSOID, F_OIDEQ, ObjectIdGetDatum(relid)};

	return has_row(catalog, "citus", &is_table, 1);
}

static bool
is_of_timescaledb(Oid relid)
{
	Oid			namespace = get_namespace_oid("_timescaledb_catalog", true);
	Oid			catalog = get_relname_relid("hypertable", namespace);
	char	   *table = get_rel_name(relid);
	char	   *schema = get_namespace_name(get_rel_namespace(relid));
	Condition	has_names[] = {
		{"table_name", NAMEOID, F_NAMEEQ, CStringGetDatum(table)},
		{"schema_name", NAMEOID, F_NAMEEQ, CStringGetDatum(schema)}
	};

	return table != NULL && schema != NULL && has_row(catalog, "timescaledb", has_names, 2);
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
