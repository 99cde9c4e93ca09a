/*-------------------------------------------------------------------------
 * table.h
 *	  A table of a subscription, and a range of its rows.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_TABLE_H
#define VERIFY_TABLE_H

#include <stdbool.h>

/* Indexes of whatever exists once for each server. */
typedef enum Side
{
	PUBLISHER,
	SUBSCRIBER
} Side;

#define SIDES 2

/* In the order of a table's life. */
typedef enum Stage
{
	NOT_BEGUN,
	BEGUN,						/* some of its ranges were compared, or are */
	DONE						/* and its summary was written */
} Stage;

typedef struct Table
{
	/* The same on both sides. */
	char	   *schema;
	char	   *name;
	char	   *shown;			/* both, quoted where SQL needs that */
	int			ncolumns;
	char	  **columns;		/* that are published */
	int			nkey;
	char	  **key;			/* of the publisher's key; nkey is 0: none */
	int			nrange;			/* the first columns of the key that divide
								 * the rows in the same way on both sides */
	char	   *filter;			/* of rows, or NULL */

	/* One for each side. */
	bool		has_partitions[SIDES];
	char	   *storage[SIDES]; /* identity of its files; changes when they
								 * are replaced */
	double		estimate;		/* number of rows on the publisher; -1: not
								 * known */

	Stage		stage;
	char	   *obstacle;		/* why it was not compared, or NULL */
	char	   *skipped;		/* numbers of the skipped transactions that
								 * have changes of it, or NULL */

	/* what was found */
	long long	rows[SIDES];
	long long	missing[SIDES]; /* number of rows that this side lacks */
	long long	changed;
} Table;

/* The rows with low < key <= high, or a part of them. */
typedef struct Range
{
	int			nvalues;		/* of the columns of the key that divide */
	char	  **low;			/* NULL: from the first row */
	char	  **high;			/* NULL: to the last row */
	int			buckets;		/* a power of two */
} Range;

#endif							/* VERIFY_TABLE_H */
