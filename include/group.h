/*-------------------------------------------------------------------------
 * room: pool
 *
 * group.h
 *	  Named sets of subscriptions that share their configuration.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GROUP_H
#define PAPPLY_GROUP_H

#include "foreign/foreign.h"
#include "storage/lockdefs.h"

#include "parallel_apply.h"

/* A group is a foreign server with this in front of its name. */
#define PAPPLY_GROUP_PREFIX "parallel_apply_"

/* Longest name of a group, in bytes. */
#define PAPPLY_GROUP_NAME_LENGTH (NAMEDATALEN - sizeof(PAPPLY_GROUP_PREFIX))

/* Its only option. */
#define PAPPLY_GROUP_NUM_WRITERS "num_writers"

/*
 * Against changes of groups: who changes them takes PAPPLY_GROUP_CHANGE_LOCK,
 * who makes a subscription a member PAPPLY_GROUP_USE_LOCK.  To the end of the
 * transaction; returns false, without a lock, if the extension is not there.
 */
#define PAPPLY_GROUP_USE_LOCK		RowExclusiveLock
#define PAPPLY_GROUP_CHANGE_LOCK	ShareRowExclusiveLock
extern bool papply_group_lock(LOCKMODE mode);

/* All of these in a transaction. */

/* The group of this name, or NULL. */
extern ForeignServer *papply_group_find(const char *name);

/* Name of the server that is a group of this name; throws if it is too long. */
extern char *papply_group_server_name(const char *name);

/* How many writers members shall have, or 0: it does not say. */
extern int	papply_group_writers(const ForeignServer *group);

/* OIDs of the current database's subscriptions in the group of this name. */
extern List *papply_group_members(const char *name);

#endif							/* PAPPLY_GROUP_H */
