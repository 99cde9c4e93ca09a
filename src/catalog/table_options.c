/*-------------------------------------------------------------------------
 * table_options.c
 *	  Options of tables that users have set.
 *
 * Runs in the receiver and in writers, which read options, and in a user's
 * backend, which sets them by set_table_option() or SECURITY LABEL.
 *
 * An option is the security label of a table, such as "triggers=parallel".
 * Labels follow the table when it is renamed or dropped, are dumped by
 * pg_dump, and are never published.  (A table of our own would be published by
 * FOR ALL TABLES, to subscribers that do not have it.)
 *
 * Changing a label invalidates the relation cache entry of its table, so that
 * other processes read the label again.  They need no callback of their own.
 * The table is locked against changes of its rows, as by ALTER TABLE ...
 * ENABLE TRIGGER.  A writer reads the label with the table locked, so after
 * the commit no writer uses the old label.
 *
 * subscription_options.c handles the labels of subscriptions.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_seclabel.h"
#include "commands/seclabel.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "subscription_options.h"
#include "table_options.h"

#define LABEL_EXCLUSIVE PAPPLY_OPTION_TRIGGERS "=" PAPPLY_TRIGGERS_EXCLUSIVE
#define LABEL_PARALLEL PAPPLY_OPTION_TRIGGERS "=" PAPPLY_TRIGGERS_PARALLEL

/*
 * Check a label before the server stores it.  A label that is removed (NULL)
 * is not checked, because the object may have been a table when it was set.
 */
static void
check_label(const ObjectAddress *object, const char *label)
{
	if (object->classId == SubscriptionRelationId)
	{
		papply_subscription_options_check_label(object->objectId, label);
		return;
	}
	if (label != NULL)
	{
		if (object->classId != RelationRelationId || object->objectSubId != 0)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("only tables and subscriptions can have a security label of \"%s\"",
							PAPPLY_NAME)));
		papply_table_options_check_table(object->objectId);
		if (strcmp(label, LABEL_EXCLUSIVE) != 0 && strcmp(label, LABEL_PARALLEL) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid security label of \"%s\": \"%s\"", PAPPLY_NAME, label),
					 errhint("Available labels are \"%s\" and \"%s\".",
							 LABEL_EXCLUSIVE, LABEL_PARALLEL)));
	}
	if (object->classId == RelationRelationId)
	{
		LockRelationOid(object->objectId, ShareRowExclusiveLock);
		CacheInvalidateRelcacheByRelid(object->objectId);

		/*
		 * Have the invalidation processed at the end of the command, even if
		 * no label changes: the server starts no subtransaction before that.
		 */
		(void) GetCurrentCommandId(true);
	}
}

void
papply_table_options_init(void)
{
	register_label_provider(PAPPLY_NAME, check_label);
}

void
papply_table_options_check_table(Oid relid)
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
}

void
papply_table_options_set(Oid relid, const char *option, const char *value)
{
	bool		is_default = strcmp(value, PAPPLY_TRIGGERS_EXCLUSIVE) == 0;
	char	   *label = is_default ? NULL : psprintf("%s=%s", option, value);
	ObjectAddress table;

	ObjectAddressSet(table, RelationRelationId, relid);
	check_label(&table, label);
	SetSecurityLabel(&table, PAPPLY_NAME, label);
	CommandCounterIncrement();	/* the same statement may set it again */
}

bool
papply_table_options_allow_triggers(Oid relid)
{
	ObjectAddress table;
	char	   *label;

	ObjectAddressSet(table, RelationRelationId, relid);
	label = GetSecurityLabel(&table, PAPPLY_NAME);
	return label != NULL && strcmp(label, LABEL_PARALLEL) == 0;
}

/*
 * No table is locked: with the extension, all writers exit, and new ones read
 * the labels again.
 */
int
papply_table_options_remove_all(void)
{
	Relation	labels = table_open(SecLabelRelationId, RowExclusiveLock);
	SysScanDesc scan = systable_beginscan(labels, InvalidOid, false, NULL, 0, NULL);
	HeapTuple	tuple;
	int			removed = 0;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		FormData_pg_seclabel *label = (FormData_pg_seclabel *) GETSTRUCT(tuple);
		bool		is_null;
		Datum		provider = heap_getattr(tuple, Anum_pg_seclabel_provider,
											RelationGetDescr(labels), &is_null);
		ObjectAddress table;

		if (strcmp(TextDatumGetCString(provider), PAPPLY_NAME) != 0)
			continue;
		ObjectAddressSubSet(table, label->classoid, label->objoid, label->objsubid);
		SetSecurityLabel(&table, PAPPLY_NAME, NULL);
		if (table.classId == RelationRelationId &&
			SearchSysCacheExists1(RELOID, ObjectIdGetDatum(table.objectId)))
			CacheInvalidateRelcacheByRelid(table.objectId);
		removed++;
	}
	systable_endscan(scan);
	table_close(labels, RowExclusiveLock);
	return removed;
}
