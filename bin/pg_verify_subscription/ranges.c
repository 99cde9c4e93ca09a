/*-------------------------------------------------------------------------
 * ranges.c
 *	  The queries that read a range of a table.
 *
 * Pure: builds text, and knows no server.
 *
 * A row is hashed as the text of ROW(columns), which is unambiguous: it quotes
 * values, and distinguishes NULL from an empty string.  The columns are those that
 * are published, in the publisher's order.  The sessions have the same settings, so
 * equal values have equal texts, whatever the types are called.
 *
 * The rows of a range are distributed to buckets by their hash; a row that was changed
 * makes two buckets differ.  The hash of the key would make it one, but would have to be
 * computed for each row.  A bucket is compared by the number of its rows and the sum of
 * their hashes, which does not depend on any order: collations do not matter, and rows
 * that exist several times count several times.  Only the rows of buckets that differ
 * are fetched.  An exclusive or would do the same for less, but would not see that a
 * pair of equal rows was replaced by another pair.
 *
 * Two different rows have the same hash with a probability of 2^-64.
 *
 * A range is bounded by the first columns of the key, where both sides order these in
 * the same way; otherwise there is a single range, of all rows.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "ranges.h"

#define MAX_BUCKETS 65536
#define MIN_BUCKETS 16

void
append_identifier(PQExpBuffer sql, const char *name)
{
	appendPQExpBufferChar(sql, '"');
	for (; *name; name++)
	{
		if (*name == '"')
			appendPQExpBufferChar(sql, '"');
		appendPQExpBufferChar(sql, *name);
	}
	appendPQExpBufferChar(sql, '"');
}

void
append_literal(PQExpBuffer sql, const char *value)
{
	appendPQExpBufferStr(sql, "E'");
	for (; *value; value++)
	{
		if (*value == '\'' || *value == '\\')
			appendPQExpBufferChar(sql, *value);
		appendPQExpBufferChar(sql, *value);
	}
	appendPQExpBufferChar(sql, '\'');
}

/*
 * Return the end of a string or an identifier in quotes, or NULL if it has none.  In a string
 * of the form E'...', a backslash could hide it; servers do not show expressions like that.
 */
static const char *
end_of_quoted(const char *sql, bool has_escapes)
{
	char		quote = *sql++;

	for (; *sql && !(has_escapes && *sql == '\\'); sql++)
		if (*sql == quote && *++sql != quote)
			return sql;
	return NULL;
}

bool
is_one_expression(const char *sql)
{
	int			depth = 0;
	bool		has_escapes = false;	/* would a string that begins here? */

	while (*sql && depth >= 0)
	{
		if (*sql == '\'' || *sql == '"')
		{
			sql = end_of_quoted(sql, has_escapes);
			if (sql == NULL)
				return false;
			has_escapes = false;
			continue;
		}
		if (*sql == ';' || *sql == '$' || strncmp(sql, "--", 2) == 0 || strncmp(sql, "/*", 2) == 0)
			return false;
		depth += (*sql == '(') - (*sql == ')');
		has_escapes = *sql == 'E' || *sql == 'e';
		sql++;
	}
	return depth == 0;
}

int
buckets_for(double rows)
{
	int			buckets = MIN_BUCKETS;

	while (buckets < MAX_BUCKETS && (double) buckets * BUCKET_ROWS < rows)
		buckets *= 2;
	return buckets;
}

static void
append_table(PQExpBuffer sql, const Table *table, Side side)
{
	if (!table->has_partitions[side])
		appendPQExpBufferStr(sql, "ONLY ");
	append_identifier(sql, table->schema);
	appendPQExpBufferChar(sql, '.');
	append_identifier(sql, table->name);
}

static void
append_names(PQExpBuffer sql, char **names, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (i > 0)
			appendPQExpBufferStr(sql, ", ");
		append_identifier(sql, names[i]);
	}
}

static void
append_row(PQExpBuffer sql, char **names, int n)
{
	appendPQExpBufferStr(sql, "ROW(");
	append_names(sql, names, n);
	appendPQExpBufferStr(sql, ")::text");
}

/*
 * Append the text that a value has in that of a row, or NULL.  A cast to text gives others
 * for some types: it strips the blanks of char(n).  A composite value whose fields all are
 * null is not NULL.
 */
static void
append_value(PQExpBuffer sql, const char *name)
{
	appendPQExpBufferStr(sql, "CASE WHEN num_nulls(");
	append_identifier(sql, name);
	appendPQExpBufferStr(sql, ") = 0 THEN concat(");
	append_identifier(sql, name);
	appendPQExpBufferStr(sql, ") END");
}

/* Append the hash of an expression, which is a text. */
static void
append_hash(PQExpBuffer sql, HashKind hash, const char *expression)
{
	if (hash == HASH_FAST)
		appendPQExpBuffer(sql, "hashtextextended(%s COLLATE \"C\", 0)", expression);
	else
		appendPQExpBuffer(sql,
						  "('x' || substr(md5(convert_to(%s, 'UTF8')), 1, 16))::bit(64)::bigint",
						  expression);
}

static void
append_hash_of_row(PQExpBuffer sql, HashKind hash, char **names, int n)
{
	PQExpBufferData row;

	initPQExpBuffer(&row);
	append_row(&row, names, n);
	append_hash(sql, hash, row.data);
	termPQExpBuffer(&row);
}

/* Append "(key) OPERATOR (values)". */
static void
append_bound(PQExpBuffer sql, const Table *table, char **values, const char *operator)
{
	appendPQExpBufferStr(sql, " AND (");
	append_names(sql, table->key, table->nrange);
	appendPQExpBuffer(sql, ") %s (", operator);
	for (int i = 0; i < table->nrange; i++)
	{
		if (i > 0)
			appendPQExpBufferStr(sql, ", ");
		append_literal(sql, values[i]);
	}
	appendPQExpBufferChar(sql, ')');
}

static void
append_where(PQExpBuffer sql, const Table *table, const Range *range)
{
	appendPQExpBufferStr(sql, " WHERE true");
	if (table->filter)
		appendPQExpBuffer(sql, " AND (%s)", table->filter);
	if (range->low)
		append_bound(sql, table, range->low, ">");
	if (range->high)
		append_bound(sql, table, range->high, "<=");
}

void
build_boundary_query(PQExpBuffer sql, const Table *table, char **low, int rows)
{
	Range		range = {.low = low};

	appendPQExpBufferStr(sql, "SELECT ");
	for (int i = 0; i < table->nrange; i++)
	{
		if (i > 0)
			appendPQExpBufferStr(sql, ", ");
		append_identifier(sql, table->key[i]);
		appendPQExpBufferStr(sql, "::text");
	}
	appendPQExpBufferStr(sql, " FROM (SELECT ");
	append_names(sql, table->key, table->nrange);
	appendPQExpBufferStr(sql, " FROM ");
	append_table(sql, table, PUBLISHER);
	append_where(sql, table, &range);
	appendPQExpBufferStr(sql, " ORDER BY ");
	append_names(sql, table->key, table->nrange);
	appendPQExpBuffer(sql, " OFFSET %d LIMIT 1) boundary", rows - 1);
}

/* Append a subquery with the column rh, the hash of the row, and more columns. */
static void
append_hashes(PQExpBuffer sql, const Table *table, Side side, const Range *range, HashKind hash,
			  const char *more_columns, const char *end)
{
	appendPQExpBufferStr(sql, "(SELECT ");
	append_hash_of_row(sql, hash, table->columns, table->ncolumns);
	appendPQExpBuffer(sql, " AS rh%s FROM ", more_columns);
	append_table(sql, table, side);
	append_where(sql, table, range);
	appendPQExpBuffer(sql, "%s) hashes", end);
}

void
build_bucket_query(PQExpBuffer sql, const Table *table, Side side, const Range *range,
				   HashKind hash)
{
	appendPQExpBuffer(sql, "SELECT rh & %d, count(*), sum(rh) FROM ", range->buckets - 1);

	/*
	 * OFFSET 0 has the hash computed only once.  It also makes the planner
	 * expect few groups, so that it does not sort the rows.
	 */
	append_hashes(sql, table, side, range, hash, "", " OFFSET 0");
	appendPQExpBufferStr(sql, " GROUP BY 1 ORDER BY 1");
}

void
build_row_query(PQExpBuffer sql, const Table *table, Side side, const Range *range,
				HashKind hash, const char *buckets, bool with_values)
{
	PQExpBufferData columns;

	initPQExpBuffer(&columns);
	if (table->nkey > 0)
	{
		appendPQExpBufferStr(&columns, ", ");
		append_hash_of_row(&columns, hash, table->key, table->nkey);
		appendPQExpBufferStr(&columns, " AS kh, ");
		append_row(&columns, table->key, table->nkey);
		appendPQExpBufferStr(&columns, " AS k");
	}
	for (int i = 0; i < table->ncolumns; i++)
	{
		PQExpBufferData text;

		initPQExpBuffer(&text);
		append_value(&text, table->columns[i]);
		appendPQExpBufferStr(&columns, ", ");
		if (with_values)
			appendPQExpBufferStr(&columns, text.data);
		else
			append_hash(&columns, hash, text.data);
		appendPQExpBuffer(&columns, " AS c%d", i);
		termPQExpBuffer(&text);
	}

	appendPQExpBufferStr(sql, table->nkey > 0 ? "SELECT kh, rh, k" : "SELECT rh, rh, NULL::text");
	for (int i = 0; i < table->ncolumns; i++)
		appendPQExpBuffer(sql, ", c%d", i);
	appendPQExpBufferStr(sql, " FROM ");
	append_hashes(sql, table, side, range, hash, columns.data, "");
	appendPQExpBuffer(sql, " WHERE (rh & %d) = ANY ('{%s}') ORDER BY 1, 2",
					  range->buckets - 1, buckets);
	termPQExpBuffer(&columns);
}

void
build_storage_query(PQExpBuffer sql, const Table *table, Side side)
{
	PQExpBufferData name;

	initPQExpBuffer(&name);
	append_identifier(&name, table->schema);
	appendPQExpBufferChar(&name, '.');
	append_identifier(&name, table->name);
	if (table->has_partitions[side])
	{
		appendPQExpBufferStr(sql,
							 "SELECT string_agg(relid::oid || ':' || coalesce(pg_relation_filenode(relid), 0), ','"
							 " ORDER BY relid::oid) FROM pg_partition_tree(");
		append_literal(sql, name.data);
		appendPQExpBufferChar(sql, ')');
	}
	else
	{
		appendPQExpBufferStr(sql, "SELECT oid::oid || ':' || coalesce(pg_relation_filenode(oid), 0) FROM (SELECT ");
		append_literal(sql, name.data);
		appendPQExpBufferStr(sql, "::regclass) files(oid)");
	}
	termPQExpBuffer(&name);
}
