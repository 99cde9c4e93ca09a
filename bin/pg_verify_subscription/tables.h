/*-------------------------------------------------------------------------
 * tables.h
 *	  The tables of a subscription, and what is published of them.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_TABLES_H
#define VERIFY_TABLES_H

#include "postgres_fe.h"

#include "libpq-fe.h"

#include "table.h"

typedef struct Tables
{
	Table	   *tables;
	int			count;
} Tables;

typedef struct Subscription
{
	char	   *oid;
	char	   *name;
	char	   *conninfo;		/* NULL: the user may not read it */
	char	   *slot;			/* NULL: none */
	char	   *publications;	/* text of an array */
	bool		is_enabled;
	char	   *last_skipped;	/* the last skipped transaction that was
								 * listed; NULL: none */
} Subscription;

/* Return the subscriptions of the database, and their number. */
extern Subscription *load_subscriptions(PGconn *subscriber, int *count);

/*
 * Return the tables that the subscription has or its publications publish, ordered by
 * name.  Those that cannot be compared have an obstacle.
 */
extern Tables load_tables(PGconn *publisher, PGconn *subscriber, const Subscription *subscription);

/*
 * Load the tables again, after what has happened to them since.  A table that was not
 * begun gets its new definition; one that was begun can be compared further only if its
 * definition is the same.  keeps_storage: the identity of its files remains that of before.
 */
extern void reload_tables(Tables *tables, PGconn *publisher, PGconn *subscriber,
						  const Subscription *subscription, bool keeps_storage);

/* Note tables that are being synchronized, as of the session's snapshot at the position. */
extern void note_synchronization(Tables *tables, PGconn *subscriber,
								 const Subscription *subscription, const char *lsn);

/*
 * List the skipped transactions that are stored, and note them with the tables that they
 * have changes of.  Each is listed once.
 */
extern void note_skipped(Tables *tables, PGconn *subscriber, Subscription *subscription);

/* Set an obstacle, unless there is one; the text is copied. */
extern void set_obstacle(Table *table, const char *obstacle);

#endif							/* VERIFY_TABLES_H */
