/*-------------------------------------------------------------------------
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
 * Lock groups to the end of the transaction: PAPPLY_GROUP_CHANGE_LOCK to
 * change them, PAPPLY_GROUP_USE_LOCK to make a subscription a member.  Returns
 * false, without a lock, if the extension is not installed.
 */
#define PAPPLY_GROUP_USE_LOCK		RowExclusiveLock
#define PAPPLY_GROUP_CHANGE_LOCK	ShareRowExclusiveLock
extern bool papply_group_lock(LOCKMODE mode);

/* Return the number of writers in text, or 0 if it is invalid. */
extern int	papply_group_parse_writers(const char *text);

/* The following functions must be called in a transaction. */

/* Return the group of this name, or NULL. */
extern ForeignServer *papply_group_find(const char *name);

/*
 * Return the name of the server that is the group of this name.  Throws an
 * error if the name is invalid.
 */
extern char *papply_group_server_name(const char *name);

/* Return the number of writers that the group sets for its members, or 0. */
extern int	papply_group_writers(const ForeignServer *group);

#endif							/* PAPPLY_GROUP_H */
