/*-------------------------------------------------------------------------
 * room: pool
 *
 * subscription_options.h
 *	  What users have configured for single subscriptions.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SUBSCRIPTION_OPTIONS_H
#define PAPPLY_SUBSCRIPTION_OPTIONS_H

#include "parallel_apply.h"

typedef struct PapplySubscriptionOptions
{
	int			writers;		/* 0: what the group or the setting says */
	bool		is_paused;
	char		group[NAMEDATALEN]; /* empty: none */
} PapplySubscriptionOptions;

/* Where the number of writers of a subscription comes from. */
typedef enum PapplyWritersSource
{
	PAPPLY_WRITERS_FROM_SETTING,
	PAPPLY_WRITERS_FROM_GROUP,
	PAPPLY_WRITERS_FROM_SUBSCRIPTION
} PapplyWritersSource;

/* In the postmaster: options go when their subscription is dropped. */
extern void papply_subscription_options_init(void);

/*
 * What has to be done before a subscription gets that security label, or loses
 * it (NULL): throws if it is none.  The subscription is locked.  Its receiver,
 * and whoever reads the options, looks again when the transaction is committed.
 */
extern void papply_subscription_options_check_label(Oid subid, const char *label);

/* A valid number of writers, or 0 if text is none. */
extern int	papply_subscription_options_parse_writers(const char *text, size_t length);

/* In a transaction.  What cannot be read is not configured. */
extern void papply_subscription_options_get(Oid subid, PapplySubscriptionOptions *options);

/*
 * In a transaction which has locked the subscription against others that do the
 * same.
 */
extern void papply_subscription_options_set(Oid subid, const PapplySubscriptionOptions *options);

/*
 * How many writers are configured: for the subscription, else for its group;
 * else 0, and the setting counts.  In a transaction.
 */
extern int	papply_subscription_options_writers(const PapplySubscriptionOptions *options,
												PapplyWritersSource *source);

#endif							/* PAPPLY_SUBSCRIPTION_OPTIONS_H */
