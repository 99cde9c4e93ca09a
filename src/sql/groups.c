/*-------------------------------------------------------------------------
 * groups.c
 *	  SQL functions that create, change and drop groups of subscriptions.
 *
 * Runs in a user's backend, with the rights of the extension's owner: every
 * user who may execute a function may use it (see the install script).
 *
 * subscription_options.c describes what a group is, and its locks.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/reloptions.h"
#include "catalog/dependency.h"
#include "catalog/pg_foreign_server.h"
#include "commands/defrem.h"
#include "fmgr.h"
#include "nodes/makefuncs.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "sql_common.h"
#include "subscription_options.h"

PG_FUNCTION_INFO_V1(papply_create_group);
PG_FUNCTION_INFO_V1(papply_drop_group);
PG_FUNCTION_INFO_V1(papply_alter_group_config);
PG_FUNCTION_INFO_V1(papply_group_validator);

/*
 * Return the first argument, the name of a group.  Locks the groups of the
 * database, so that no other session changes or uses them.
 */
static const char *
begin_change(FunctionCallInfo fcinfo, const char *function)
{
	const char *name;

	PreventCommandIfReadOnly(function);
	name = papply_sql_get_group_name(fcinfo);
	(void) papply_group_lock(PAPPLY_GROUP_CHANGE_LOCK);
	return name;
}

/* Make the members read their configuration when the transaction commits. */
static void
wake_members(const char *name)
{
	ListCell   *cell;

	foreach(cell, papply_subscription_options_members(name))
		papply_subscription_options_wake_worker(lfirst_oid(cell));
}

/* Make the list of options for CREATE or ALTER SERVER.  DROP ignores the value. */
static List *
make_option(int writers, DefElemAction action)
{
	return list_make1(makeDefElemExtended(NULL, PAPPLY_GROUP_NUM_WRITERS,
										  (Node *) makeString(psprintf("%d", writers)), action, -1));
}

/* papply_create_group(name, num_writers or NULL) creates a group. */
Datum
papply_create_group(PG_FUNCTION_ARGS)
{
	const char *name = begin_change(fcinfo, "create_group()");
	int			writers = papply_sql_get_writers(fcinfo, 1);
	CreateForeignServerStmt *statement = makeNode(CreateForeignServerStmt);

	statement->servername = papply_group_server_name(name);
	statement->fdwname = PAPPLY_NAME;
	if (writers > 0)
		statement->options = make_option(writers, DEFELEM_UNSPEC);
	if (papply_group_find(name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("group \"%s\" already exists", name)));
	(void) CreateForeignServer(statement);
	CommandCounterIncrement();
	wake_members(name);			/* left by a group of this name that DROP
								 * SERVER has dropped */
	PG_RETURN_VOID();
}

/*
 * papply_drop_group(name) drops a group without members.
 */
Datum
papply_drop_group(PG_FUNCTION_ARGS)
{
	const char *name = begin_change(fcinfo, "drop_group()");
	ForeignServer *group = papply_sql_get_group(name);
	List	   *members = papply_subscription_options_members(name);
	ObjectAddress server;

	if (members != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop group \"%s\" because it has subscriptions", name),
				 errdetail_plural("It has %d subscription, such as \"%s\".",
								  "It has %d subscriptions, such as \"%s\".",
								  list_length(members), list_length(members),
								  get_subscription_name(linitial_oid(members), false)),
				 errhint("Use %s to remove them from the group.",
						 PAPPLY_NAME ".remove_subscription()")));
	ObjectAddressSet(server, ForeignServerRelationId, group->serverid);
	performDeletion(&server, DROP_RESTRICT, 0);
	PG_RETURN_VOID();
}

/*
 * papply_alter_group_config(name, num_writers or NULL) changes the number of
 * writers.
 */
Datum
papply_alter_group_config(PG_FUNCTION_ARGS)
{
	const char *name = begin_change(fcinfo, "alter_group_config()");
	int			writers = papply_sql_get_writers(fcinfo, 1);
	ForeignServer *group = papply_sql_get_group(name);
	AlterForeignServerStmt *statement = makeNode(AlterForeignServerStmt);

	if (writers == papply_group_writers(group))
		PG_RETURN_VOID();
	statement->servername = group->servername;
	statement->options = make_option(writers, writers == 0 ? DEFELEM_DROP :
									 papply_group_writers(group) == 0 ? DEFELEM_ADD : DEFELEM_SET);
	(void) AlterForeignServer(statement);
	CommandCounterIncrement();
	wake_members(name);
	PG_RETURN_VOID();
}

/*
 * papply_group_validator(options, catalog) throws unless CREATE or ALTER SERVER
 * may set these options.
 */
Datum
papply_group_validator(PG_FUNCTION_ARGS)
{
	List	   *options = untransformRelOptions(PG_GETARG_DATUM(0));
	Oid			catalog = PG_GETARG_OID(1);
	ListCell   *cell;

	foreach(cell, options)
	{
		DefElem    *option = lfirst(cell);
		char	   *value;

		if (catalog != ForeignServerRelationId ||
			strcmp(option->defname, PAPPLY_GROUP_NUM_WRITERS) != 0)
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", option->defname),
					 errhint("The only option of a group is \"%s\".",
							 PAPPLY_GROUP_NUM_WRITERS)));
		value = defGetString(option);
		if (papply_group_parse_writers(value) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid value for option \"%s\": \"%s\"",
							PAPPLY_GROUP_NUM_WRITERS, value),
					 errdetail("Valid values are between \"%d\" and \"%d\".", 1, PAPPLY_MAX_WRITERS)));
	}
	PG_RETURN_VOID();
}
