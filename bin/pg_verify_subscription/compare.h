/*-------------------------------------------------------------------------
 * compare.h
 *	  Compare what two servers return for the same range.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_COMPARE_H
#define VERIFY_COMPARE_H

#include "postgres_fe.h"

#include "pqexpbuffer.h"

#include "table.h"

/* Rows of a bucket; the sum of their hashes is a number of any size. */
typedef struct Bucket
{
	int			number;
	long long	rows;
	const char *sum;
} Bucket;

/*
 * Append the numbers of the buckets that differ, separated by commas.  Both arrays are
 * ordered by number.  Return how many there are.
 */
extern int	compare_buckets(const Bucket *left, int nleft, const Bucket *right, int nright,
							PQExpBuffer different);

typedef struct Row
{
	long long	key_hash;
	long long	hash;
	char	   *key;			/* NULL: the table has no key */
	char	  **columns;		/* values or hashes of them; NULL: null */
} Row;

/* Take a difference; one of the rows is NULL if it is missing there. */
typedef void (*TakeDifference) (void *arg, const Row *publisher, const Row *subscriber);

/*
 * Compare the rows of both sides, each ordered by key_hash and hash, as they arrive.  No
 * more than a fixed number of rows is kept.
 */
typedef struct Comparison Comparison;

extern Comparison *begin_comparison(TakeDifference take, void *arg, int ncolumns);

/* Is the next row of this side needed?  If that of no side is, all rows were compared. */
extern bool wants_row(const Comparison *comparison, Side side);

/* Pass the next row of a side that wants one, allocated with malloc; NULL: there is none. */
extern void give_row(Comparison *comparison, Side side, Row *row);

/* Report what is left after the last row, and free the comparison. */
extern void end_comparison(Comparison *comparison);

extern void free_row(Row *row, int ncolumns);

#endif							/* VERIFY_COMPARE_H */
