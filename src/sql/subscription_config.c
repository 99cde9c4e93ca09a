/*-------------------------------------------------------------------------
 * subscription_config.c
 *	  SQL functions that configure single subscriptions.
 *
 * Runs in a user's backend.
 *
 * The functions are one way to set what subscription_options.c stores;
 * SECURITY LABEL is another.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "group.h"
#include "result_rows.h"
#include "sql_common.h"
#include "subscription_options.h"

PG_FUNCTION_INFO_V1(papply_add_subscription);
PG_FUNCTION_INFO_V1(papply_remove_subscription);
PG_FUNCTION_INFO_V1(papply_alter_subscription_config);
PG_FUNCTION_INFO_V1(papply_pause);
PG_FUNCTION_INFO_V1(papply_resume);
PG_FUNCTION_INFO_V1(papply_get_subscription_options);
PG_FUNCTION_INFO_V1(papply_report_subscriptions);

static const PapplyResultColumn option_columns[] = {
	{"group_name", NAMEOID},
	{"num_writers", INT4OID},
	{"writers_wanted", INT4OID},
	{"source", TEXTOID},
	{"paused", BOOLOID}
};

#define OPTIONS_COLUMNS lengthof(option_columns)

static const char *
get_group_name(FunctionCallInfo fcinfo, int argument)
{
	if (PG_ARGISNULL(argument))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("group name must not be null")));
	return NameStr(*PG_GETARG_NAME(argument));
}

/*
 * papply_add_subscription(group, subscription), which is in no other group.
 */
Datum
papply_add_subscription(PG_FUNCTION_ARGS)
{
	const char *group = get_group_name(fcinfo, 0);
	Oid			subid = papply_sql_change_subscription(fcinfo, 1, "add_subscription()");
	PapplySubscriptionOptions options;

	(void) papply_group_lock(PAPPLY_GROUP_USE_LOCK);
	(void) papply_sql_get_group(group);
	papply_subscription_options_get(subid, &options);
	if (options.group[0] != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("subscription \"%s\" is already in group \"%s\"",
						NameStr(*PG_GETARG_NAME(1)), options.group),
				 strcmp(options.group, group) == 0 ? 0 :
				 errhint("Use %s before you add it to another one.",
						 PAPPLY_NAME ".remove_subscription()")));
	strlcpy(options.group, group, sizeof(options.group));
	papply_subscription_options_set(subid, &options);
	PG_RETURN_VOID();
}

/*
 * papply_remove_subscription(group, subscription).  The group itself may be gone.
 */
Datum
papply_remove_subscription(PG_FUNCTION_ARGS)
{
	const char *group = get_group_name(fcinfo, 0);
	Oid			subid = papply_sql_change_subscription(fcinfo, 1, "remove_subscription()");
	PapplySubscriptionOptions options;

	papply_subscription_options_get(subid, &options);
	if (options.group[0] == '\0' || strcmp(options.group, group) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("subscription \"%s\" is not in group \"%s\"",
						NameStr(*PG_GETARG_NAME(1)), group),
				 options.group[0] == '\0' ? 0 :
				 errhint("It is in group \"%s\".", options.group)));
	options.group[0] = '\0';
	papply_subscription_options_set(subid, &options);
	PG_RETURN_VOID();
}

/*
 * papply_alter_subscription_config(subscription, num_writers or NULL).
 */
Datum
papply_alter_subscription_config(PG_FUNCTION_ARGS)
{
	Oid			subid = papply_sql_change_subscription(fcinfo, 0, "alter_subscription_config()");
	PapplySubscriptionOptions options;

	papply_subscription_options_get(subid, &options);
	options.writers = papply_sql_get_writers(fcinfo, 1);
	papply_subscription_options_set(subid, &options);
	PG_RETURN_VOID();
}

static void
set_paused(FunctionCallInfo fcinfo, bool is_paused, const char *function)
{
	Oid			subid = papply_sql_change_subscription(fcinfo, 0, function);
	PapplySubscriptionOptions options;

	papply_subscription_options_get(subid, &options);
	options.is_paused = is_paused;
	papply_subscription_options_set(subid, &options);
}

/* papply_pause(subscription) stops applying transactions. */
Datum
papply_pause(PG_FUNCTION_ARGS)
{
	set_paused(fcinfo, true, "pause()");
	PG_RETURN_VOID();
}

/* papply_resume(subscription) continues to apply transactions. */
Datum
papply_resume(PG_FUNCTION_ARGS)
{
	set_paused(fcinfo, false, "resume()");
	PG_RETURN_VOID();
}

static const char *
name_of_source(PapplyWritersSource source)
{
	switch (source)
	{
		case PAPPLY_WRITERS_FROM_SETTING:
			return "setting";
		case PAPPLY_WRITERS_FROM_GROUP:
			return "group";
		case PAPPLY_WRITERS_FROM_SUBSCRIPTION:
			return "subscription";
	}
	return NULL;
}

/*
 * papply_get_subscription_options(subid) returns what is configured for a
 * subscription of this database, and what follows from it.
 */
Datum
papply_get_subscription_options(PG_FUNCTION_ARGS)
{
	PapplySubscriptionOptions options;
	PapplyWritersSource source;
	int			writers;
	Datum		values[OPTIONS_COLUMNS];
	bool		nulls[OPTIONS_COLUMNS] = {false};
	int			i = 0;

	papply_subscription_options_get(PG_GETARG_OID(0), &options);
	writers = papply_guc_writers(papply_subscription_options_writers(&options, &source));

	nulls[i] = options.group[0] == '\0';
	values[i++] = DirectFunctionCall1(namein, CStringGetDatum(options.group));
	nulls[i] = options.writers == 0;
	values[i++] = Int32GetDatum(options.writers);
	values[i++] = Int32GetDatum(writers > 1 ? writers : 0);
	values[i++] = CStringGetTextDatum(name_of_source(source));
	values[i++] = BoolGetDatum(options.is_paused);
	Assert(i == OPTIONS_COLUMNS);
	PG_RETURN_DATUM(papply_result_rows_single(fcinfo, option_columns, OPTIONS_COLUMNS, values, nulls));
}

/* Subscriptions to be reported at the end of the transaction. */
typedef struct Switched
{
	StringInfo	names;			/* NULL: none */
	int			count;
	bool		has_callback;
} Switched;

static Switched switched;

static void
report_at_commit(XactEvent event, void *arg)
{
	StringInfo	names = switched.names;

	switched.names = NULL;
	if (names == NULL || event != XACT_EVENT_PRE_COMMIT ||
		!OidIsValid(get_extension_oid(PAPPLY_NAME, true)))
		return;
	ereport(NOTICE,
			(errmsg_plural("subscription %s will be applied in parallel",
						   "subscriptions %s will be applied in parallel",
						   switched.count, names->data),
			 errhint("Use %s to exclude a subscription.",
					 PAPPLY_NAME ".alter_subscription_config(subscription_name, 1)")));
}

/*
 * papply_report_subscriptions(names) says which subscriptions the installation of the
 * extension switches to parallel apply.  The function exists only while it is installed;
 * the server suppresses messages below WARNING then, hence they are issued later.
 */
Datum
papply_report_subscriptions(PG_FUNCTION_ARGS)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopTransactionContext);
	StringInfo	list = makeStringInfo();
	Datum	   *names;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(0), NAMEOID, NAMEDATALEN, false, TYPALIGN_CHAR,
					  &names, NULL, &switched.count);
	for (int i = 0; i < switched.count; i++)
		appendStringInfo(list, "%s\"%s\"", i > 0 ? ", " : "", NameStr(*DatumGetName(names[i])));
	MemoryContextSwitchTo(old_context);
	if (!switched.has_callback)
		RegisterXactCallback(report_at_commit, NULL);
	switched.has_callback = true;
	switched.names = list;
	PG_RETURN_VOID();
}
