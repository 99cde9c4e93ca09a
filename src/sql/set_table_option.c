/*-------------------------------------------------------------------------
 * set_table_option.c
 *	  The SQL function that sets an option of a table.
 *
 * Runs in a user's backend.
 *
 * The function is one way to set what table_options.c stores; SECURITY LABEL
 * is another.  The table is locked before anything is changed, and the user's
 * rights are checked again after that, since they may change during the wait
 * for the lock.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "sql_common.h"
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
	if (strcmp(value, PAPPLY_TRIGGERS_EXCLUSIVE) != 0 &&
		strcmp(value, PAPPLY_TRIGGERS_PARALLEL) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid value for table option \"%s\": \"%s\"", option, value),
				 errhint("Available values are \"%s\" and \"%s\".",
						 PAPPLY_TRIGGERS_EXCLUSIVE, PAPPLY_TRIGGERS_PARALLEL)));
}

/* Throw unless relid is a table that the user owns. */
static void
check_table(Oid relid)
{
	papply_table_options_check_table(relid);
	if (!papply_compat_is_owner(RelationRelationId, relid))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relid));
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

	PreventCommandIfReadOnly("set_table_option()");
	for (int i = 0; i < PG_NARGS(); i++)
		papply_sql_refuse_null(fcinfo, i, "relation, option and value");
	relid = PG_GETARG_OID(0);
	option = text_to_cstring(PG_GETARG_TEXT_PP(1));
	value = text_to_cstring(PG_GETARG_TEXT_PP(2));

	check_option(option, value);
	check_table(relid);			/* users without rights must not lock it */
	LockRelationOid(relid, ShareRowExclusiveLock);
	check_table(relid);			/* it may have changed meanwhile */
	papply_table_options_set(relid, option, value);
	PG_RETURN_VOID();
}
