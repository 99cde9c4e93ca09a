/*-------------------------------------------------------------------------
 * subscription_options.h
 *	  Options of subscriptions, and of groups of them, that users have set.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SUBSCRIPTION_OPTIONS_H
#define PAPPLY_SUBSCRIPTION_OPTIONS_H

#include "foreign/foreign.h"
#include "storage/lockdefs.h"

#include "parallel_apply.h"

typedef struct PapplySubscriptionOptions
{
	int			writers;		/* 0: that of the group or the setting */
	bool		is_paused;
	char		group[NAMEDATALEN]; /* empty if none */
} PapplySubscriptionOptions;

/* Source of the number of writers of a subscription. */
typedef enum PapplyWritersSource
{
	PAPPLY_WRITERS_FROM_SETTING,
	PAPPLY_WRITERS_FROM_GROUP,
	PAPPLY_WRITERS_FROM_SUBSCRIPTION
} PapplyWritersSource;

/*
 * Prepare setting or removing (NULL) this security label of a subscription.
 * Throws an error if it is invalid.  The subscription is locked.  After the
 * commit the options are read again, by its receiver too.
 */
extern void papply_subscription_options_check_label(Oid subid, const char *label);

/* Read the options, in a transaction.  An invalid label counts as none. */
extern void papply_subscription_options_get(Oid subid, PapplySubscriptionOptions *options);

/*
 * Store the options.  The transaction must have locked the subscription
 * against others that do the same.
 */
extern void papply_subscription_options_set(Oid subid, const PapplySubscriptionOptions *options);

/*
 * Return the number of writers that is configured for the subscription, or
 * else for its group; 0 if the setting applies.  The caller is in a
 * transaction.
 */
extern int	papply_subscription_options_writers(const PapplySubscriptionOptions *options,
												PapplyWritersSource *source);

/*
 * Return the OIDs of the current database's subscriptions in this group.  Must
 * be called in a transaction.
 */
extern List *papply_subscription_options_members(const char *group);

/*
 * Return the OIDs of the enabled subscriptions of all databases.  Must be
 * called in a transaction.
 */
extern List *papply_subscription_options_enabled(void);

/*
 * Remove the options of all subscriptions of this database.  Warns for each
 * that is paused.  Returns how many had options.
 */
extern int	papply_subscription_options_remove_all(void);

/* Remove those of one that is dropped. */
extern void papply_subscription_options_remove(Oid subid);

/*
 * Wake the leader apply worker of this subscription, if it has one, after the
 * current transaction has committed and its invalidations have been sent.
 */
extern void papply_subscription_options_wake_worker(Oid subid);

/* Will the current transaction wake it? */
extern bool papply_subscription_options_wakes_worker(Oid subid);

/*** groups ***/

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

#endif							/* PAPPLY_SUBSCRIPTION_OPTIONS_H */
