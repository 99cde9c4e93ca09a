/*-------------------------------------------------------------------------
 * output.c
 *	  Write what was found, as text, CSV or JSON.
 *
 * Pure: appends to a buffer.
 *
 * A line is about a row that differs, or about a table.  Each line of CSV has the
 * same columns: subscription, relation, result, key, detail.  Each line of JSON is an
 * object.  Without a key, a row is named by its hash.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "output.h"

bool
is_different(const Table *table)
{
	return table->missing[PUBLISHER] + table->missing[SUBSCRIBER] + table->changed > 0;
}

/*** values ***/

static void
append_csv(PQExpBuffer text, const char *value)
{
	if (strpbrk(value, ",\"\r\n") == NULL)
	{
		appendPQExpBufferStr(text, value);
		return;
	}
	appendPQExpBufferChar(text, '"');
	for (; *value; value++)
	{
		if (*value == '"')
			appendPQExpBufferChar(text, '"');
		appendPQExpBufferChar(text, *value);
	}
	appendPQExpBufferChar(text, '"');
}

static void
append_json(PQExpBuffer text, const char *value)
{
	if (value == NULL)
	{
		appendPQExpBufferStr(text, "null");
		return;
	}
	appendPQExpBufferChar(text, '"');
	for (; *value; value++)
	{
		if (*value == '"' || *value == '\\')
			appendPQExpBuffer(text, "\\%c", *value);
		else if ((unsigned char) *value < ' ')
			appendPQExpBuffer(text, "\\u%04x", (unsigned char) *value);
		else
			appendPQExpBufferChar(text, *value);
	}
	appendPQExpBufferChar(text, '"');
}

/* A line of text stays one line. */
static void
append_text(PQExpBuffer text, const char *value)
{
	for (; *value; value++)
	{
		if (*value == '\n')
			appendPQExpBufferStr(text, "\\n");
		else if (*value == '\r')
			appendPQExpBufferStr(text, "\\r");
		else
			appendPQExpBufferChar(text, *value);
	}
}

static bool
is_changed(const Row *publisher, const Row *subscriber, int column)
{
	const char *left = publisher->columns[column];
	const char *right = subscriber->columns[column];

	return left == NULL || right == NULL ? left != right : strcmp(left, right) != 0;
}

/* Append how the row is named: by its key, or by its hash. */
static void
append_name(PQExpBuffer name, const Row *row)
{
	if (row->key != NULL)
		appendPQExpBufferStr(name, row->key);
	else
		appendPQExpBuffer(name, "hash %016llx", (unsigned long long) row->hash);
}

/* Append "name=value, name=value" of all columns, or of those that differ from other. */
static void
append_values(PQExpBuffer text, const Table *table, const Row *row, const Row *other)
{
	int			n = 0;

	for (int i = 0; i < table->ncolumns; i++)
	{
		if (other != NULL && !is_changed(row, other, i))
			continue;
		appendPQExpBuffer(text, "%s%s=%s", n++ > 0 ? ", " : "", table->columns[i],
						  row->columns[i] != NULL ? row->columns[i] : "NULL");
	}
}

static void
append_changed_columns(PQExpBuffer text, const Table *table, const Row *publisher,
					   const Row *subscriber)
{
	int			n = 0;

	for (int i = 0; i < table->ncolumns; i++)
		if (is_changed(publisher, subscriber, i))
			appendPQExpBuffer(text, "%s%s", n++ > 0 ? ", " : "", table->columns[i]);
}

static const char *
result_of_row(const Row *publisher, const Row *subscriber)
{
	return subscriber == NULL ? "missing on subscriber" :
		publisher == NULL ? "missing on publisher" : "differs";
}

/*** lines ***/

/* Append a line of text or CSV. */
static void
append_line(PQExpBuffer text, const Output *output, const Table *table, const char *result,
			const char *key, const char *detail)
{
	if (output->format == FORMAT_CSV)
	{
		const char *fields[] = {output->subscription, table->shown, result, key, detail};

		for (int i = 0; i < lengthof(fields); i++)
		{
			if (i > 0)
				appendPQExpBufferChar(text, ',');
			append_csv(text, fields[i]);
		}
		appendPQExpBufferChar(text, '\n');
		return;
	}
	append_text(text, table->shown);
	appendPQExpBufferStr(text, ": ");
	if (key[0] != '\0')
	{
		append_text(text, key);
		appendPQExpBufferStr(text, ": ");
	}
	appendPQExpBufferStr(text, result);
	if (detail[0] != '\0')
	{
		appendPQExpBufferStr(text, strcmp(result, "differs") == 0 ? " in: " : ": ");
		append_text(text, detail);
	}
	appendPQExpBufferChar(text, '\n');
}

static void
append_json_head(PQExpBuffer text, const Output *output, const Table *table, const char *result)
{
	appendPQExpBufferStr(text, "{\"subscription\": ");
	append_json(text, output->subscription);
	appendPQExpBufferStr(text, ", \"relation\": ");
	append_json(text, table->shown);
	appendPQExpBufferStr(text, ", \"result\": ");
	append_json(text, result);
}

static void
append_json_row(PQExpBuffer text, const char *name, const Table *table, const Row *row)
{
	appendPQExpBuffer(text, ", \"%s\": {", name);
	for (int i = 0; i < table->ncolumns; i++)
	{
		if (i > 0)
			appendPQExpBufferStr(text, ", ");
		append_json(text, table->columns[i]);
		appendPQExpBufferStr(text, ": ");
		append_json(text, row->columns[i]);
	}
	appendPQExpBufferChar(text, '}');
}

static void
append_json_difference(PQExpBuffer text, const Output *output, const Table *table,
					   const Row *publisher, const Row *subscriber, const char *key)
{
	bool		is_first = true;

	append_json_head(text, output, table, result_of_row(publisher, subscriber));
	appendPQExpBufferStr(text, ", \"key\": ");
	append_json(text, key);
	if (publisher != NULL && subscriber != NULL)
	{
		appendPQExpBufferStr(text, ", \"columns\": [");
		for (int i = 0; i < table->ncolumns; i++)
		{
			if (!is_changed(publisher, subscriber, i))
				continue;
			if (!is_first)
				appendPQExpBufferStr(text, ", ");
			append_json(text, table->columns[i]);
			is_first = false;
		}
		appendPQExpBufferChar(text, ']');
	}
	if (output->with_values && publisher != NULL)
		append_json_row(text, "publisher", table, publisher);
	if (output->with_values && subscriber != NULL)
		append_json_row(text, "subscriber", table, subscriber);
	appendPQExpBufferStr(text, "}\n");
}

void
append_head(PQExpBuffer text, const Output *output)
{
	if (output->format == FORMAT_CSV)
		appendPQExpBufferStr(text, "subscription,relation,result,key,detail\n");
}

void
append_difference(PQExpBuffer text, const Output *output, const Table *table,
				  const Row *publisher, const Row *subscriber)
{
	PQExpBufferData key;
	PQExpBufferData detail;

	initPQExpBuffer(&key);
	initPQExpBuffer(&detail);
	append_name(&key, publisher != NULL ? publisher : subscriber);
	if (publisher != NULL && subscriber != NULL)
		append_changed_columns(&detail, table, publisher, subscriber);
	if (output->with_values && publisher != NULL && subscriber != NULL)
		appendPQExpBufferStr(&detail, ": ");
	if (output->with_values && publisher != NULL)
	{
		append_values(&detail, table, publisher, subscriber);
		if (subscriber != NULL)
			appendPQExpBufferStr(&detail, " on publisher; ");
	}
	if (output->with_values && subscriber != NULL)
	{
		append_values(&detail, table, subscriber, publisher);
		if (publisher != NULL)
			appendPQExpBufferStr(&detail, " on subscriber");
	}
	if (output->format == FORMAT_JSON)
		append_json_difference(text, output, table, publisher, subscriber, key.data);
	else
		append_line(text, output, table, result_of_row(publisher, subscriber), key.data,
					detail.data);
	termPQExpBuffer(&key);
	termPQExpBuffer(&detail);
}

void
append_summary(PQExpBuffer text, const Output *output, const Table *table)
{
	const char *result = table->obstacle ? "not compared" :
	is_different(table) ? "different" : "equal";
	PQExpBufferData detail;

	if (output->format == FORMAT_JSON)
	{
		append_json_head(text, output, table, result);
		if (table->obstacle)
		{
			appendPQExpBufferStr(text, ", \"reason\": ");
			append_json(text, table->obstacle);
		}
		else
			appendPQExpBuffer(text, ", \"publisher_rows\": %lld, \"subscriber_rows\": %lld, "
							  "\"missing_on_subscriber\": %lld, \"missing_on_publisher\": %lld, "
							  "\"differing\": %lld",
							  table->rows[PUBLISHER], table->rows[SUBSCRIBER],
							  table->missing[SUBSCRIBER], table->missing[PUBLISHER],
							  table->changed);
		if (table->skipped)
			appendPQExpBuffer(text, ", \"skipped_transactions\": [%s]", table->skipped);
		appendPQExpBufferStr(text, "}\n");
		return;
	}
	initPQExpBuffer(&detail);
	if (table->obstacle)
		appendPQExpBufferStr(&detail, table->obstacle);
	else if (is_different(table))
		appendPQExpBuffer(&detail, "%lld rows on publisher, %lld on subscriber; "
						  "%lld missing on subscriber, %lld missing on publisher, %lld differ",
						  table->rows[PUBLISHER], table->rows[SUBSCRIBER],
						  table->missing[SUBSCRIBER], table->missing[PUBLISHER], table->changed);
	else
		appendPQExpBuffer(&detail, "%lld rows", table->rows[PUBLISHER]);
	if (table->skipped)
		appendPQExpBuffer(&detail, "; changes of it were skipped and stored with number %s",
						  table->skipped);
	append_line(text, output, table, result, "", detail.data);
	termPQExpBuffer(&detail);
}

void
append_progress(PQExpBuffer text, int done, int tables, double rows, double total,
				double seconds)
{
	double		rate = seconds > 0 ? rows / seconds : 0;

	appendPQExpBuffer(text, "%d of %d tables, %.0f", done, tables, rows);
	if (total > 0)
		appendPQExpBuffer(text, " of about %.0f rows (%.0f%%)", total, 100 * Min(rows / total, 1));
	else
		appendPQExpBufferStr(text, " rows");
	appendPQExpBuffer(text, ", %.0f rows per second", rate);
	if (total >= rows && rate > 0)
	{
		long		left = (long) ((total - rows) / rate);

		appendPQExpBuffer(text, ", about %ld:%02ld:%02ld left", left / 3600, left / 60 % 60, left % 60);
	}
}
