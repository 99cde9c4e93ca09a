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

#include "result_rows.h"
#include "session_pauses.h"
#include "sql_common.h"
#include "subscription_options.h"

PG_FUNCTION_INFO_V1(papply_add_subscription);
PG_FUNCTION_INFO_V1(papply_remove_subscription);
PG_FUNCTION_INFO_V1(papply_alter_subscription_config);
PG_FUNCTION_INFO_V1(papply_pause);
PG_FUNCTION_INFO_V1(papply_resume);
PG_FUNCTION_INFO_V1(papply_get_subscription_options);
PG_FUNCTION_INFO_V1(papply_report_subscriptions);

static const char *const sources[] = {
	[PAPPLY_WRITERS_FROM_SETTING] = "setting",
	[PAPPLY_WRITERS_FROM_GROUP] = "group",
	[PAPPLY_WRITERS_FROM_SUBSCRIPTION] = "subscription"
};

/*
 * papply_add_subscription(group, subscription), which is in no other group.
 */
Datum
papply_add_subscription(PG_FUNCTION_ARGS)
{
	const char *group = papply_sql_get_group_name(fcinfo);
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
	const char *group = papply_sql_get_group_name(fcinfo);
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

static Datum
set_paused(FunctionCallInfo fcinfo, bool is_paused, const char *function)
{
	Oid			subid = papply_sql_change_subscription(fcinfo, 0, function);
	PapplySubscriptionOptions options;

	papply_subscription_options_get(subid, &options);
	options.is_paused = is_paused;
	papply_subscription_options_set(subid, &options);
	PG_RETURN_VOID();
}

/* papply_pause(subscription) stops applying transactions. */
Datum
papply_pause(PG_FUNCTION_ARGS)
{
	return set_paused(fcinfo, true, "pause()");
}

/*
 * papply_resume(subscription) continues to apply transactions.  A pause of a session
 * ends at once, not at the commit.
 */
Datum
papply_resume(PG_FUNCTION_ARGS)
{
	Datum		result = set_paused(fcinfo, false, "resume()");

	papply_session_pauses_remove(papply_sql_get_subscription(fcinfo, 0));
	return result;
}

/*
 * papply_get_subscription_options(subid) returns what is configured for a
 * subscription of this database, and what follows from it.
 */
Datum
papply_get_subscription_options(PG_FUNCTION_ARGS)
{
	PapplyRow  *row = papply_row_begin(fcinfo);
	PapplySubscriptionOptions options;
	PapplyWritersSource source;
	int			writers;

	papply_subscription_options_get(PG_GETARG_OID(0), &options);
	writers = papply_guc_writers(papply_subscription_options_writers(&options, &source));
	papply_row_value(row, "group_name", NAMEOID,
					 DirectFunctionCall1(namein, CStringGetDatum(options.group)),
					 options.group[0] == '\0');
	papply_row_value(row, "num_writers", INT4OID, Int32GetDatum(options.writers), options.writers == 0);
	papply_row_value(row, "writers_wanted", INT4OID, Int32GetDatum(writers > 1 ? writers : 0), false);
	papply_row_text(row, "source", sources[source]);
	papply_row_value(row, "paused", BOOLOID, BoolGetDatum(options.is_paused), false);
	papply_row_put(row);
	return (Datum) 0;
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
