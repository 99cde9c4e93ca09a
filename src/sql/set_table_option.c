/*-------------------------------------------------------------------------
 * set_table_option.c
 *	  The SQL function that declares something about a table.
 *
 * Runs in a user's backend.
 *
 * The table is locked as by ALTER TABLE ... ENABLE TRIGGER, against those who
 * change its rows: a writer asks with the table locked, so when the change is
 * committed, nobody acts on the old value.  The table of options is locked
 * before it, against others who call the function.  Its rows are written like
 * those of a catalog, since the owner of a table has no rights on it, and are
 * only those that differ from the defaults.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/relation.h"
#include "catalog/catalog.h"
#include "catalog/indexing.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "table_options.h"

PG_FUNCTION_INFO_V1(papply_set_table_option);

/* Throw unless the option exists and may have that value. */
static void
check_option(const char *option, const char *value)
{
	if (strcmp(option, PAPPLY_OPTION_TRIGGERS) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized table option \"%s\"", option),
				 errhint("The only option is \"%s\".", PAPPLY_OPTION_TRIGGERS)));
	if (strcmp(value, PAPPLY_TRIGGERS_SERIAL) != 0 &&
		strcmp(value, PAPPLY_TRIGGERS_PARALLEL) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for table option \"%s\": \"%s\"", option, value),
				 errhint("Available values are \"%s\" and \"%s\".",
						 PAPPLY_TRIGGERS_SERIAL, PAPPLY_TRIGGERS_PARALLEL)));
}

/* Throw unless relid is a table of the user. */
static void
check_table(Oid relid)
{
	char	   *name = get_rel_name(relid);
	char		kind = get_rel_relkind(relid);

	if (name == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a table", name)));
	if (IsCatalogRelationOid(relid))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied: \"%s\" is a system catalog", name)));
	if (!papply_compat_is_owner_of_relation(relid))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, name);
}

/* Remove the row of that option, and those of tables that are gone. */
static void
remove_rows(Relation options, Oid relid, const char *option)
{
	TupleDesc	desc = RelationGetDescr(options);
	SysScanDesc scan = systable_beginscan(options, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		bool		is_null;	/* never */
		Oid			row_relid = DatumGetObjectId(heap_getattr(tuple, PAPPLY_TABLE_OPTIONS_RELID,
															  desc, &is_null));
		Datum		row_option = heap_getattr(tuple, PAPPLY_TABLE_OPTIONS_OPTION,
											  desc, &is_null);

		if ((row_relid == relid && strcmp(TextDatumGetCString(row_option), option) == 0) ||
			!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(row_relid)))
			CatalogTupleDelete(options, &tuple->t_self);
	}
	systable_endscan(scan);
}

static void
add_row(Relation options, Oid relid, const char *option, const char *value)
{
	Datum		values[PAPPLY_TABLE_OPTIONS_COLUMNS];
	bool		nulls[PAPPLY_TABLE_OPTIONS_COLUMNS] = {false};

	values[PAPPLY_TABLE_OPTIONS_RELID - 1] = ObjectIdGetDatum(relid);
	values[PAPPLY_TABLE_OPTIONS_OPTION - 1] = CStringGetTextDatum(option);
	values[PAPPLY_TABLE_OPTIONS_VALUE - 1] = CStringGetTextDatum(value);
	CatalogTupleInsert(options, heap_form_tuple(RelationGetDescr(options), values, nulls));
}

/*
 * papply_set_table_option(table, option, value) sets it, or throws.
 */
Datum
papply_set_table_option(PG_FUNCTION_ARGS)
{
	Oid			relid;
	char	   *option;
	char	   *value;
	Relation	options;

	PreventCommandIfReadOnly("set_table_option()");
	PreventCommandDuringRecovery("set_table_option()");
	if (PG_ARGISNULL(0) || PG_ARGISNULL(1) || PG_ARGISNULL(2))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("table, option and value must not be null")));
	relid = PG_GETARG_OID(0);
	option = text_to_cstring(PG_GETARG_TEXT_PP(1));
	value = text_to_cstring(PG_GETARG_TEXT_PP(2));

	check_option(option, value);
	check_table(relid);			/* who has no rights shall not lock it */
	options = papply_table_options_open(ShareRowExclusiveLock, false);
	if (options == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("table \"%s.table_options\" does not exist", PAPPLY_NAME)));
	LockRelationOid(relid, ShareRowExclusiveLock);
	check_table(relid);			/* it may have changed meanwhile */
	remove_rows(options, relid, option);
	if (strcmp(value, PAPPLY_TRIGGERS_SERIAL) != 0)
		add_row(options, relid, option, value);
	relation_close(options, NoLock);
	CacheInvalidateRelcacheByRelid(relid);
	PG_RETURN_VOID();
}
