/*-------------------------------------------------------------------------
 * output.h
 *	  Write what was found, as text, CSV or JSON.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_OUTPUT_H
#define VERIFY_OUTPUT_H

#include "postgres_fe.h"

#include "pqexpbuffer.h"

#include "compare.h"
#include "table.h"

typedef enum Format
{
	FORMAT_TEXT,
	FORMAT_CSV,
	FORMAT_JSON
} Format;

typedef struct Output
{
	Format		format;
	bool		with_values;	/* rows have values instead of hashes */
	const char *subscription;
} Output;

/* Append the line that comes before all others, if the format has one. */
extern void append_head(PQExpBuffer text, const Output *output);

/* Append the line of a row that differs; one of the rows may be NULL. */
extern void append_difference(PQExpBuffer text, const Output *output, const Table *table,
							  const Row *publisher, const Row *subscriber);

/* Append the line of a table that was compared, or could not be. */
extern void append_summary(PQExpBuffer text, const Output *output, const Table *table);

/*
 * Append how much of all tables has been compared, and an estimate of the time that is left
 * if total, about how many rows there are, is known (not negative).
 */
extern void append_progress(PQExpBuffer text, int done, int tables, double rows, double total,
							double seconds);

/* Has the table rows that differ? */
extern bool is_different(const Table *table);

#endif							/* VERIFY_OUTPUT_H */
