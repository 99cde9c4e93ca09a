/*-------------------------------------------------------------------------
 * subscription_options.c
 *	  Options of subscriptions, and of groups of them, that users have set.
 *
 * Runs in the receiver, which reads options, and in a user's backend, which
 * sets them by the functions of src/sql/subscription_config.c and groups.c,
 * or SECURITY LABEL.
 *
 * The options are the security label of the subscription, such as
 * "writers=8,paused=on,group=reporting".  An option that is missing is
 * inherited.  The group comes last, because its name can contain any
 * character.  It need not exist: when a dump is restored, it may be created
 * later.
 *
 * Labels follow the subscription when it is renamed, and are dumped by
 * pg_dump.  DROP SUBSCRIPTION would leave the label to a later subscription
 * with the same OID, so a hook removes it.
 *
 * Changing a label invalidates the syscache of subscriptions.  Receivers have a
 * callback for that, but an idle one processes invalidations once a second.  So
 * the receiver of this one is woken after the invalidations have been sent.
 * Transaction callbacks run before that, but there is also a callback at the
 * release of locks, which comes after.  The subscriptions of a subtransaction
 * that is rolled back are not removed, and are woken without need.
 *
 * A group is a foreign server of the foreign-data wrapper "parallel_apply",
 * which has no handler.  It is nothing but a name with options, an owner and a
 * place in pg_dump.  A table of our own would be published by FOR ALL TABLES,
 * to subscribers that do not have the table.  Labels and settings of the
 * database are only in a dump of the whole server.  Foreign servers share one
 * name space, hence the prefix.
 *
 * A group does not know its members.  They have its name in their own options.
 * Locks are taken on the wrapper, so there is one for all groups of a
 * database: making a subscription a member excludes creating, changing and
 * dropping groups.  DROP SERVER does not take these locks.  The members of a
 * group that was dropped are treated like subscriptions without a group.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "commands/defrem.h"
#include "commands/seclabel.h"
#include "lib/stringinfo.h"
#include "storage/lmgr.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "subscription_options.h"

#define KEY_WRITERS "writers="
#define KEY_PAUSED "paused="
#define KEY_GROUP "group="

/*** the apply worker ***/

/* The subscriptions whose apply workers are woken at the commit. */
typedef struct Wakes
{
	List	   *subscriptions;	/* in TopTransactionContext */
	bool		has_callback;
} Wakes;

static Wakes wakes;

static void
wake_after_release(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	ListCell   *cell;

	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !is_top_level)
		return;
	if (is_commit)
	{
		foreach(cell, wakes.subscriptions)
			papply_compat_wake_leader(lfirst_oid(cell));
	}
	wakes.subscriptions = NIL;
}

void
papply_subscription_options_wake_worker(Oid subid)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopTransactionContext);

	Assert(IsTransactionState());
	if (!wakes.has_callback)
		RegisterResourceReleaseCallback(wake_after_release, NULL);
	wakes.has_callback = true;
	wakes.subscriptions = list_append_unique_oid(wakes.subscriptions, subid);
	MemoryContextSwitchTo(old_context);
}

bool
papply_subscription_options_wakes_worker(Oid subid)
{
	return list_member_oid(wakes.subscriptions, subid);
}

/*** groups ***/

bool
papply_group_lock(LOCKMODE mode)
{
	ForeignDataWrapper *wrapper = GetForeignDataWrapperByName(PAPPLY_NAME, true);

	if (wrapper == NULL)
		return false;
	LockDatabaseObject(ForeignDataWrapperRelationId, wrapper->fdwid, 0, mode);
	return GetForeignDataWrapperByName(PAPPLY_NAME, true) != NULL;
}

char *
papply_group_server_name(const char *name)
{
	if (name[0] == '\0' || strlen(name) > PAPPLY_GROUP_NAME_LENGTH)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("invalid group name: \"%s\"", name),
				 errdetail("A group name must have between 1 and %d bytes.",
						   (int) PAPPLY_GROUP_NAME_LENGTH)));
	return psprintf("%s%s", PAPPLY_GROUP_PREFIX, name);
}

ForeignServer *
papply_group_find(const char *name)
{
	ForeignDataWrapper *wrapper = GetForeignDataWrapperByName(PAPPLY_NAME, true);
	ForeignServer *group = GetForeignServerByName(papply_group_server_name(name), true);

	if (wrapper == NULL || group == NULL || group->fdwid != wrapper->fdwid)
		return NULL;
	return group;
}

int
papply_group_parse_writers(const char *text)
{
	size_t		length = strlen(text);
	int			writers = 0;

	if (length <= 2 && strspn(text, "0123456789") == length)
		writers = atoi(text);
	Assert(writers >= 0);
	return writers <= PAPPLY_MAX_WRITERS ? writers : 0;
}

int
papply_group_writers(const ForeignServer *group)
{
	ListCell   *cell;

	foreach(cell, group->options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, PAPPLY_GROUP_NUM_WRITERS) == 0)
			return papply_group_parse_writers(defGetString(option));
	}
	return 0;
}

/*** labels ***/

/* Return the value if part begins with this key, or NULL. */
static const char *
value_of(const char *part, const char *key)
{
	size_t		length = strlen(key);

	return strncmp(part, key, length) == 0 ? part + length : NULL;
}

/* Parse a label.  Returns NULL, or the text from the first invalid item on. */
static const char *
parse_label(const char *label, PapplySubscriptionOptions *options)
{
	memset(options, 0, sizeof(*options));
	for (;;)
	{
		size_t		length = strcspn(label, ",");
		char	   *item = pnstrdup(label, length);
		const char *value;

		if ((value = value_of(label, KEY_GROUP)) != NULL)
		{
			if (value[0] == '\0' || strlen(value) > PAPPLY_GROUP_NAME_LENGTH)
				return label;
			strlcpy(options->group, value, sizeof(options->group));
			return NULL;
		}
		if ((value = value_of(item, KEY_WRITERS)) != NULL)
		{
			options->writers = papply_group_parse_writers(value);
			if (options->writers == 0)
				return label;
		}
		else if (strcmp(item, KEY_PAUSED "on") == 0)
			options->is_paused = true;
		else if (strcmp(item, KEY_PAUSED "off") == 0)
			options->is_paused = false;
		else
			return label;

		if (label[length] == '\0')
			return NULL;
		label += length + 1;
	}
}

/* Return NULL if nothing is configured. */
static char *
make_label(const PapplySubscriptionOptions *options)
{
	StringInfoData label;

	initStringInfo(&label);
	if (options->writers > 0)
		appendStringInfo(&label, ",%s%d", KEY_WRITERS, options->writers);
	if (options->is_paused)
		appendStringInfo(&label, ",%son", KEY_PAUSED);
	if (options->group[0] != '\0')
		appendStringInfo(&label, ",%s%s", KEY_GROUP, options->group);
	return label.len > 0 ? label.data + 1 : NULL;
}

/*
 * Invalidate the syscache, and have that processed at the end of the command
 * even if no label changes: the server starts no subtransaction before that.
 */
static void
invalidate(Oid subid)
{
	CacheInvalidateCatalog(SubscriptionRelationId);
	(void) GetCurrentCommandId(true);
	papply_subscription_options_wake_worker(subid);
}

void
papply_subscription_options_check_label(Oid subid, const char *label)
{
	PapplySubscriptionOptions options;

	if (label != NULL)
	{
		const char *rest = parse_label(label, &options);

		if (rest != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("invalid security label of \"%s\": \"%s\"", PAPPLY_NAME, label),
					 errdetail("\"%s\" is not valid here.", rest),
					 errhint("The label of a subscription is a list such as \"%s\".",
							 KEY_WRITERS "8," KEY_PAUSED "on," KEY_GROUP "name")));
		if (options.group[0] != '\0')
			(void) papply_group_lock(PAPPLY_GROUP_USE_LOCK);
	}
	invalidate(subid);
}

void
papply_subscription_options_get(Oid subid, PapplySubscriptionOptions *options)
{
	ObjectAddress subscription;
	char	   *label;

	ObjectAddressSet(subscription, SubscriptionRelationId, subid);
	label = GetSecurityLabel(&subscription, PAPPLY_NAME);
	if (label == NULL || parse_label(label, options) != NULL)
		memset(options, 0, sizeof(*options));
}

/* Return the OIDs of the subscriptions with this value in a column of pg_subscription. */
static List *
subscriptions_with(AttrNumber column, RegProcedure equals, Datum value)
{
	List	   *subscriptions = NIL;
	Relation	rel = table_open(SubscriptionRelationId, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, equals, value);
	scan = systable_beginscan(rel, InvalidOid, false, NULL, 1, &key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		subscriptions = lappend_oid(subscriptions,
									((Form_pg_subscription) GETSTRUCT(tuple))->oid);
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return subscriptions;
}

static List *
subscriptions_here(void)
{
	return subscriptions_with(Anum_pg_subscription_subdbid, F_OIDEQ,
							  ObjectIdGetDatum(MyDatabaseId));
}

List *
papply_subscription_options_enabled(void)
{
	return subscriptions_with(Anum_pg_subscription_subenabled, F_BOOLEQ, BoolGetDatum(true));
}

List *
papply_subscription_options_members(const char *name)
{
	List	   *members = NIL;
	ListCell   *cell;

	foreach(cell, subscriptions_here())
	{
		PapplySubscriptionOptions options;

		papply_subscription_options_get(lfirst_oid(cell), &options);
		if (strcmp(options.group, name) == 0)
			members = lappend_oid(members, lfirst_oid(cell));
	}
	return members;
}

void
papply_subscription_options_set(Oid subid, const PapplySubscriptionOptions *options)
{
	ObjectAddress subscription;

	ObjectAddressSet(subscription, SubscriptionRelationId, subid);
	invalidate(subid);
	SetSecurityLabel(&subscription, PAPPLY_NAME, make_label(options));
	CommandCounterIncrement();	/* the same statement may set it again */
}

void
papply_subscription_options_remove(Oid subid)
{
	ObjectAddress subscription;

	ObjectAddressSet(subscription, SubscriptionRelationId, subid);
	SetSecurityLabel(&subscription, PAPPLY_NAME, NULL);
}

int
papply_subscription_options_remove_all(void)
{
	int			removed = 0;
	ListCell   *cell;

	foreach(cell, subscriptions_here())
	{
		Oid			subid = lfirst_oid(cell);
		PapplySubscriptionOptions options;
		ObjectAddress subscription;

		ObjectAddressSet(subscription, SubscriptionRelationId, subid);
		if (GetSecurityLabel(&subscription, PAPPLY_NAME) == NULL)
			continue;
		papply_subscription_options_get(subid, &options);
		if (options.is_paused)
			ereport(WARNING,
					(errmsg("apply of subscription \"%s\" is paused and will be resumed",
							get_subscription_name(subid, false))));
		invalidate(subid);
		SetSecurityLabel(&subscription, PAPPLY_NAME, NULL);
		removed++;
	}
	return removed;
}

int
papply_subscription_options_writers(const PapplySubscriptionOptions *options,
									PapplyWritersSource *source)
{
	ForeignServer *group = NULL;
	int			writers = options->writers;

	*source = PAPPLY_WRITERS_FROM_SUBSCRIPTION;
	if (writers == 0 && options->group[0] != '\0')
	{
		*source = PAPPLY_WRITERS_FROM_GROUP;
		group = papply_group_find(options->group);
		writers = group != NULL ? papply_group_writers(group) : 0;
	}
	if (writers == 0)
		*source = PAPPLY_WRITERS_FROM_SETTING;
	return writers;
}
