/*-------------------------------------------------------------------------
 * ranges.h
 *	  The queries that read a range of a table.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_RANGES_H
#define VERIFY_RANGES_H

#include "postgres_fe.h"

#include "pqexpbuffer.h"

#include "table.h"

/* About this many rows are in a range, and in a bucket of it. */
#define RANGE_ROWS 100000		/* without a limit */
#define BUCKET_ROWS 128

/* How a text is hashed: both servers must do it in the same way. */
typedef enum HashKind
{
	HASH_FAST,					/* hashtextextended() */
	HASH_PORTABLE				/* md5() of UTF-8 */
} HashKind;

/* Append an identifier or a literal, quoted for any setting of the server. */
extern void append_identifier(PQExpBuffer sql, const char *name);
extern void append_literal(PQExpBuffer sql, const char *value);

/*
 * Is this one expression, whatever is before and behind its place in a query, as far as
 * quotes and parentheses show?  A row filter comes from the publisher, and is part of queries of
 * the subscriber.  standard_conforming_strings is on, see server.c.
 */
extern bool is_one_expression(const char *sql);

/* Return how many buckets a range of about this many rows has. */
extern int	buckets_for(double rows);

/*
 * Query for the values of the divided columns at the row that ends a range which
 * begins after low.  It returns no row if fewer than this many are left.
 */
extern void build_boundary_query(PQExpBuffer sql, const Table *table, char **low, int rows);

/* Query for bucket, number of rows and sum of hashes, for each bucket with rows. */
extern void build_bucket_query(PQExpBuffer sql, const Table *table, Side side,
							   const Range *range, HashKind hash);

/*
 * Query for the rows of some buckets, ordered by the hash of the key, then by that of the
 * row: both hashes, the key, and for each column its value or only the hash of it.
 */
extern void build_row_query(PQExpBuffer sql, const Table *table, Side side, const Range *range,
							HashKind hash, const char *buckets, bool with_values);

/* Query for the identity of the table's files on that side. */
extern void build_storage_query(PQExpBuffer sql, const Table *table, Side side);

#endif							/* VERIFY_RANGES_H */
