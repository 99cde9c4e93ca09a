/*-------------------------------------------------------------------------
 * group.c
 *	  Named sets of subscriptions that share their configuration.
 *
 * Runs in the receiver, which reads groups, and in a user's backend, which
 * changes them by the functions of src/sql/groups.c.
 *
 * A group is a foreign server of the foreign-data wrapper "parallel_apply",
 * which has no handler.  It is nothing but a name with options, an owner and a
 * place in pg_dump.  A table of our own would be published by FOR ALL TABLES,
 * to subscribers that do not have the table.  Labels and settings of the
 * database are only in a dump of the whole server.  Foreign servers share one
 * name space, hence the prefix.
 *
 * A group does not know its members.  They have its name in their own options
 * (subscription_options.c).  Locks are taken on the wrapper, so there is one
 * for all groups of a database: making a subscription a member excludes
 * creating, changing and dropping groups.  DROP SERVER does not take these
 * locks.  The members of a group that was dropped are treated like
 * subscriptions without a group.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_foreign_data_wrapper.h"
#include "commands/defrem.h"
#include "storage/lmgr.h"

#include "group.h"

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
