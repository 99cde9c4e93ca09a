/*-------------------------------------------------------------------------
 * table_options.c
 *	  What users have declared about tables.
 *
 * Runs in the receiver and in writers, which read, and in a user's backend,
 * where set_table_option.c writes.
 *
 * The options are rows of parallel_apply.table_options, which pg_dump dumps.
 * The table is found by its name in each transaction, since the extension may
 * be dropped and created again while a receiver and its writers run.  Whoever
 * changes a row invalidates the relation cache entry of the table that it is
 * about, so that those who read ask again; they need no callback of their own.
 *
 * A table that just has that name, where there is no extension, is not read:
 * its columns could be anything.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/relation.h"
#include "access/skey.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "table_options.h"

Relation
papply_table_options_open(LOCKMODE lockmode, bool nowait)
{
	Oid			schema = get_namespace_oid(PAPPLY_NAME, true);
	Oid			relid = OidIsValid(schema) ?
	get_relname_relid("table_options", schema) : InvalidOid;
	Oid			extension = get_extension_oid(PAPPLY_NAME, true);

	if (!OidIsValid(relid) || !OidIsValid(extension) ||
		getExtensionOfObject(RelationRelationId, relid) != extension)
		return NULL;
	if (!nowait)
		LockRelationOid(relid, lockmode);
	else if (!ConditionalLockRelationOid(relid, lockmode))
		return NULL;
	return try_relation_open(relid, NoLock);
}

static bool
column_is(Relation rel, HeapTuple tuple, int column, const char *wanted)
{
	bool		is_null;
	Datum		value = heap_getattr(tuple, column, RelationGetDescr(rel), &is_null);

	return !is_null && strcmp(TextDatumGetCString(value), wanted) == 0;
}

bool
papply_table_options_has(Oid relid, const char *option, const char *value, bool nowait)
{
	Relation	rel = papply_table_options_open(AccessShareLock, nowait);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	bool		found = false;

	if (rel == NULL)
		return false;
	ScanKeyInit(&key, PAPPLY_TABLE_OPTIONS_RELID, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(relid));
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	while (!found && HeapTupleIsValid(tuple = systable_getnext(scan)))
		found = column_is(rel, tuple, PAPPLY_TABLE_OPTIONS_OPTION, option) &&
			column_is(rel, tuple, PAPPLY_TABLE_OPTIONS_VALUE, value);
	systable_endscan(scan);
	relation_close(rel, AccessShareLock);
	return found;
}
