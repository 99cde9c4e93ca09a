/*-------------------------------------------------------------------------
 * tables.c
 *	  The tables of a subscription, and what is published of them.
 *
 * pg_publication_tables says what is published: with a partitioned table published as
 * itself, its name and not those of its partitions; the columns of column lists, and
 * generated columns where these are published; the row filters.  Filters of several
 * publications are combined as a publisher does.  The subscription's tables have the
 * same names.  It need not have a partition of a table that another of its publications
 * publishes as itself: from 16 on, a subscriber leaves these out.
 *
 * Rows are compared by the publisher's key, which is the primary key, or the index of
 * the replica identity, if all its columns are published.
 *
 * Nothing is computed more than once for a table, since there may be many tables.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "catalog/pg_type_d.h"
#include "common/logging.h"
#include "pqexpbuffer.h"

#include "ranges.h"
#include "server.h"
#include "tables.h"

/* Identity of the files of table c, as build_storage_query() has it. */
#define STORAGE \
	"CASE WHEN c.relkind = 'p' THEN" \
	" (SELECT string_agg(relid::oid || ':' || coalesce(pg_relation_filenode(relid), 0), ','" \
	" ORDER BY relid::oid) FROM pg_partition_tree(c.oid))" \
	" ELSE c.oid || ':' || coalesce(pg_relation_filenode(c.oid), 0) END"

/*
 * About how many rows table c has; -1: not known.  Statistics count those that were written
 * since VACUUM or ANALYZE, and before the first one.  The size of the files would need a
 * lock, so that all tables would wait for one that is locked.
 */
#define ROWS(c) "greatest(" c ".reltuples, nullif(pg_stat_get_live_tuples(" c ".oid), 0))"
#define ESTIMATE \
	"CASE WHEN c.relkind = 'p' THEN" \
	" (SELECT CASE WHEN min(" ROWS("f") ") < 0 THEN -1 ELSE coalesce(sum(" ROWS("f") "), 0) END" \
	" FROM pg_partition_tree(c.oid) t JOIN pg_class f ON f.oid = t.relid WHERE t.isleaf)" \
	" ELSE " ROWS("c") " END"

/* The key of table c, and the position of column a in it. */
#define KEY \
	" LEFT JOIN LATERAL (SELECT indkey, indnkeyatts FROM pg_index" \
	" WHERE indrelid = c.oid AND (indisprimary OR indisreplident) AND indisvalid AND indimmediate" \
	" ORDER BY indisprimary DESC LIMIT 1) i ON true"
#define KEY_POSITION \
	"CASE WHEN array_position(t.indkey::int2[], a.attnum) < t.indnkeyatts" \
	" THEN array_position(t.indkey::int2[], a.attnum) END"

/* Columns of both queries. */
enum
{
	COLUMN_SCHEMA,
	COLUMN_NAME,
	COLUMN_HAS_PARTITIONS,
	COLUMN_STORAGE,
	COLUMN_OBSTACLE,
	COLUMN_ATTNAME,				/* null: no column is published */
	COLUMN_TYPE,
	COLUMN_KEY_POSITION,		/* null: not in the key */
	COLUMN_KEY_LENGTH,
	COLUMN_FILTER,
	COLUMN_ESTIMATE,
	COLUMN_HAS_PUBLISHED_ROOT	/* only of what is published */
};

static char *
value_of(PGresult *result, int row, int column)
{
	return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

static bool
is_true(PGresult *result, int row, int column)
{
	return PQgetvalue(result, row, column)[0] == 't';
}

void
set_obstacle(Table *table, const char *obstacle)
{
	if (table->obstacle == NULL)
		table->obstacle = pg_strdup(obstacle);
}

Subscription *
load_subscriptions(PGconn *subscriber, int *count)
{
	PGresult   *result = query(subscriber,
							   "SELECT oid, subname, subslotname, subpublications::text, subenabled,"
							   " has_column_privilege('pg_subscription', 'subconninfo', 'SELECT')"
							   " FROM pg_subscription"
							   " WHERE subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
							   " ORDER BY subname");
	Subscription *subscriptions = pg_malloc0(PQntuples(result) * sizeof(Subscription));

	*count = PQntuples(result);
	for (int i = 0; i < *count; i++)
	{
		Subscription *subscription = &subscriptions[i];
		char		sql[200];

		subscription->oid = pg_strdup(PQgetvalue(result, i, 0));
		subscription->name = pg_strdup(PQgetvalue(result, i, 1));
		if (!PQgetisnull(result, i, 2))
			subscription->slot = pg_strdup(PQgetvalue(result, i, 2));
		subscription->publications = pg_strdup(PQgetvalue(result, i, 3));
		subscription->is_enabled = is_true(result, i, 4);
		if (!is_true(result, i, 5))
			continue;
		snprintf(sql, sizeof(sql), "SELECT subconninfo FROM pg_subscription WHERE oid = %s",
				 subscription->oid);
		subscription->conninfo = query_value(subscriber, sql);
	}
	PQclear(result);
	return subscriptions;
}

static PGresult *
query_published(PGconn *publisher, const Subscription *subscription)
{
	PQExpBufferData sql;
	PGresult   *result;

	initPQExpBuffer(&sql);
	appendPQExpBufferStr(&sql,
						 "WITH published AS MATERIALIZED (SELECT schemaname, tablename,"
						 " min(attnames::text)::name[] AS attnames, count(DISTINCT attnames::text) AS lists,"
						 " CASE WHEN bool_and(rowfilter IS NOT NULL)"
						 " THEN string_agg('(' || rowfilter || ')', ' OR ') END AS filter,"
						 " bool_or(pubinsert AND pubupdate AND pubdelete AND pubtruncate AND rowfilter IS NULL)"
						 " OR bool_and(pubinsert AND pubupdate AND pubdelete AND pubtruncate) AS is_whole"
						 " FROM pg_publication_tables JOIN pg_publication USING (pubname) WHERE pubname = ANY (");
	append_literal(&sql, subscription->publications);
	appendPQExpBufferStr(&sql,
						 ") GROUP BY 1, 2),"
						 " tables AS MATERIALIZED (SELECT p.*, c.oid, c.relkind, " STORAGE " AS storage, "
						 ESTIMATE " AS estimate, i.indkey, i.indnkeyatts"
						 " FROM published p JOIN pg_namespace n ON n.nspname = p.schemaname"
						 " JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename" KEY ")"
						 " SELECT t.schemaname, t.tablename, t.relkind = 'p', t.storage,"
						 " CASE WHEN t.lists > 1 THEN 'its publications have different column lists'"
						 " WHEN NOT t.is_whole THEN 'its publication does not publish all operations, so equality cannot be expected' END,"
						 " a.attname, a.atttypid, " KEY_POSITION ", t.indnkeyatts, t.filter, t.estimate,"
						 " t.oid IN (SELECT relid FROM tables r, pg_partition_tree(r.oid) WHERE r.relkind = 'p' AND level > 0)"
						 " FROM tables t"
						 " LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped"
						 " AND a.attname = ANY (t.attnames)");

	/* before 18 generated columns are not published, although 15 lists them */
	if (PQserverVersion(publisher) < 180000)
		appendPQExpBufferStr(&sql, " AND a.attgenerated = ''");
	appendPQExpBufferStr(&sql, " ORDER BY 1, 2, a.attnum");
	result = query(publisher, sql.data);
	termPQExpBuffer(&sql);
	return result;
}

static PGresult *
query_subscribed(PGconn *subscriber, const Subscription *subscription)
{
	PQExpBufferData sql;
	PGresult   *result;

	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql,
					  "WITH tables AS MATERIALIZED (SELECT n.nspname, c.relname, c.oid, c.relkind, "
					  STORAGE " AS storage, i.indkey, i.indnkeyatts,"
					  " CASE WHEN sr.srsubstate <> 'r' THEN 'it is being synchronized' ELSE"
					  " (SELECT 'it is a table of subscription ' || string_agg(quote_ident(s.subname), ', ') || ', too'"
					  " FROM pg_subscription_rel o JOIN pg_subscription s ON s.oid = o.srsubid"
					  " WHERE o.srrelid = sr.srrelid AND o.srsubid <> sr.srsubid) END AS obstacle"
					  " FROM pg_subscription_rel sr JOIN pg_class c ON c.oid = sr.srrelid"
					  " JOIN pg_namespace n ON n.oid = c.relnamespace" KEY
					  " WHERE sr.srsubid = %s AND c.relkind IN ('r', 'p'))"
					  " SELECT t.nspname, t.relname, t.relkind = 'p', t.storage, t.obstacle,"
					  " a.attname, a.atttypid, " KEY_POSITION ", t.indnkeyatts, NULL, NULL"
					  " FROM tables t"
					  " LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped"
					  " ORDER BY 1, 2, a.attnum",
					  subscription->oid);
	result = query(subscriber, sql.data);
	termPQExpBuffer(&sql);
	return result;
}

/* Order tables by name, in the same way for servers of all encodings. */
static int
order_of_names(const char *left_schema, const char *left_name, const char *right_schema,
			   const char *right_name)
{
	int			order = strcmp(left_schema, right_schema);

	return order != 0 ? order : strcmp(left_name, right_name);
}

/* The rows of a table in a result; without any, it is the end of an array. */
typedef struct Group
{
	const char *schema;			/* NULL: no rows */
	const char *name;
	int			row;
	int			end;			/* after the last one */
} Group;

/* Compare by name; the end comes last. */
static int
order_of_groups(const void *left, const void *right)
{
	const Group *l = left;
	const Group *r = right;

	if (l->schema == NULL || r->schema == NULL)
		return (l->schema == NULL) - (r->schema == NULL);
	return order_of_names(l->schema, l->name, r->schema, r->name);
}

/*
 * Return an array of the tables of a result, whose rows are together for each table.  A
 * server orders names by their bytes in its own encoding, so they are sorted here.
 */
static Group *
find_groups(PGresult *result)
{
	Group	   *groups = pg_malloc0((PQntuples(result) + 1) * sizeof(Group));
	int			count = 0;

	for (int row = 0; row < PQntuples(result); row++)
	{
		Group		group = {
			.schema = PQgetvalue(result, row, COLUMN_SCHEMA),
			.name = PQgetvalue(result, row, COLUMN_NAME),
			.row = row
		};

		if (row == 0 || order_of_groups(&group, &groups[count - 1]) != 0)
			groups[count++] = group;
		groups[count - 1].end = row + 1;
	}
	qsort(groups, count, sizeof(Group), order_of_groups);
	return groups;
}

static int
find_column(PGresult *result, int row, int end, const char *name)
{
	for (; row < end; row++)
		if (!PQgetisnull(result, row, COLUMN_ATTNAME) &&
			strcmp(PQgetvalue(result, row, COLUMN_ATTNAME), name) == 0)
			return row;
	return -1;
}

/* Types that all servers order in the same way, whatever their settings are. */
static bool
is_ordered_alike(Oid type)
{
	switch (type)
	{
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case NUMERICOID:
		case UUIDOID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return true;
		default:
			return false;
	}
}

/* Fill in the key from the rows of both sides. */
static void
set_key(Table *table, PGresult *published, int row, int end, PGresult *subscribed, int other,
		int other_end)
{
	char	   *length = value_of(published, row, COLUMN_KEY_LENGTH);
	bool		is_prefix = true;
	int			found = 0;
	int			nkey;
	int		   *rows;

	if (length == NULL)
		return;
	nkey = atoi(length);
	rows = pg_malloc0(Max(nkey, 0) * sizeof(int));
	for (int i = row; i < end; i++)
	{
		char	   *place = value_of(published, i, COLUMN_KEY_POSITION);

		if (place == NULL || atoi(place) < 0 || atoi(place) >= nkey)
			continue;
		rows[atoi(place)] = i;
		found++;
	}
	if (found == nkey)
	{
		table->nkey = found;
		table->key = pg_malloc0(found * sizeof(char *));
	}
	for (int i = 0; i < table->nkey; i++)
	{
		char	   *name = PQgetvalue(published, rows[i], COLUMN_ATTNAME);
		char	   *type = PQgetvalue(published, rows[i], COLUMN_TYPE);
		int			same = find_column(subscribed, other, other_end, name);
		char	   *position = same < 0 ? NULL : value_of(subscribed, same, COLUMN_KEY_POSITION);

		table->key[i] = pg_strdup(name);
		is_prefix = is_prefix && position != NULL && atoi(position) == i &&
			strcmp(PQgetvalue(subscribed, same, COLUMN_TYPE), type) == 0 &&
			is_ordered_alike(strtoul(type, NULL, 10));
		if (is_prefix)
			table->nrange = i + 1;
	}
	free(rows);
}

/* Fill in the published columns; the subscriber must have them. */
static void
set_columns(Table *table, PGresult *published, int row, int end, PGresult *subscribed, int other,
			int other_end)
{
	table->columns = pg_malloc0((end - row) * sizeof(char *));
	for (int i = row; i < end; i++)
	{
		char	   *name = value_of(published, i, COLUMN_ATTNAME);

		if (name == NULL)
			continue;
		table->columns[table->ncolumns++] = pg_strdup(name);
		if (other < other_end && find_column(subscribed, other, other_end, name) < 0)
		{
			PQExpBufferData obstacle;

			initPQExpBuffer(&obstacle);
			appendPQExpBuffer(&obstacle, "the subscriber does not have column \"%s\"", name);
			set_obstacle(table, obstacle.data);
			termPQExpBuffer(&obstacle);
		}
	}
	if (table->ncolumns == 0)
		set_obstacle(table, "no column is published");
}

static void
set_name(Table *table, const Group *group)
{
	PQExpBufferData shown;

	table->schema = pg_strdup(group->schema);
	table->name = pg_strdup(group->name);
	initPQExpBuffer(&shown);
	for (int i = 0; i < 2; i++)
	{
		const char *name = i == 0 ? table->schema : table->name;
		bool		is_plain = strspn(name, "abcdefghijklmnopqrstuvwxyz_0123456789") == strlen(name);

		if (i > 0)
			appendPQExpBufferChar(&shown, '.');
		if (is_plain)
			appendPQExpBufferStr(&shown, name);
		else
			append_identifier(&shown, name);
	}
	table->shown = pg_strdup(shown.data);
	termPQExpBuffer(&shown);
}

/* Fill in what each side says about a table. */
static void
set_side(Table *table, Side side, PGresult *result, int row)
{
	table->has_partitions[side] = is_true(result, row, COLUMN_HAS_PARTITIONS);
	table->storage[side] = pg_strdup(PQgetvalue(result, row, COLUMN_STORAGE));
	if (!PQgetisnull(result, row, COLUMN_OBSTACLE))
		set_obstacle(table, PQgetvalue(result, row, COLUMN_OBSTACLE));
	if (side == PUBLISHER)
	{
		char	   *filter = value_of(result, row, COLUMN_FILTER);

		table->filter = filter ? pg_strdup(filter) : NULL;
		if (filter && !is_one_expression(filter))
			set_obstacle(table, "its row filter is not an expression");
		table->estimate = atof(PQgetvalue(result, row, COLUMN_ESTIMATE));
	}
}

Tables
load_tables(PGconn *publisher, PGconn *subscriber, const Subscription *subscription)
{
	PGresult   *subscribed = query_subscribed(subscriber, subscription);
	PGresult   *published = query_published(publisher, subscription);
	Tables		tables = {.tables = pg_malloc0((PQntuples(published) + PQntuples(subscribed)) * sizeof(Table))};
	Group	   *groups[SIDES] = {find_groups(published), find_groups(subscribed)};
	const Group none = {0};
	const Group *next[SIDES] = {groups[PUBLISHER], groups[SUBSCRIBER]};

	while (next[PUBLISHER]->schema != NULL || next[SUBSCRIBER]->schema != NULL)
	{
		int			order = order_of_groups(next[PUBLISHER], next[SUBSCRIBER]);
		const Group *p = order <= 0 ? next[PUBLISHER]++ : &none;
		const Group *s = order >= 0 ? next[SUBSCRIBER]++ : &none;
		Table	   *table = &tables.tables[tables.count];

		if (s == &none && is_true(published, p->row, COLUMN_HAS_PUBLISHED_ROOT))
			continue;
		tables.count++;
		set_name(table, order <= 0 ? p : s);
		if (s == &none)
			set_obstacle(table, "it is published, but not a table of the subscription (ALTER SUBSCRIPTION ... REFRESH PUBLICATION)");
		else
			set_side(table, SUBSCRIBER, subscribed, s->row);
		if (p == &none)
			set_obstacle(table, "it is not published");
		else
		{
			set_side(table, PUBLISHER, published, p->row);
			set_columns(table, published, p->row, p->end, subscribed, s->row, s->end);
			set_key(table, published, p->row, p->end, subscribed, s->row, s->end);
		}
	}
	free(groups[PUBLISHER]);
	free(groups[SUBSCRIBER]);
	PQclear(published);
	PQclear(subscribed);
	return tables;
}

static bool
is_same_list(char **left, int nleft, char **right, int nright)
{
	for (int i = 0; i < nleft && nleft == nright; i++)
		if (strcmp(left[i], right[i]) != 0)
			return false;
	return nleft == nright;
}

/* Do both definitions compare the same of the same rows, in ranges of the same key? */
static bool
is_same_definition(const Table *left, const Table *right)
{
	return is_same_list(left->columns, left->ncolumns, right->columns, right->ncolumns) &&
		is_same_list(left->key, left->nkey, right->key, right->nkey) &&
		left->nrange == right->nrange &&
		strcmp(left->filter ? left->filter : "", right->filter ? right->filter : "") == 0 &&
		left->has_partitions[PUBLISHER] == right->has_partitions[PUBLISHER] &&
		left->has_partitions[SUBSCRIBER] == right->has_partitions[SUBSCRIBER];
}

static void
free_table(Table *table)
{
	for (int i = 0; i < table->ncolumns; i++)
		free(table->columns[i]);
	for (int i = 0; i < table->nkey; i++)
		free(table->key[i]);
	free(table->columns);
	free(table->key);
	free(table->schema);
	free(table->name);
	free(table->shown);
	free(table->filter);
	free(table->storage[PUBLISHER]);
	free(table->storage[SUBSCRIBER]);
	free(table->obstacle);
	free(table->skipped);
}

static void
swap_storage(Table *left, Table *right)
{
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		char	   *storage = left->storage[side];

		left->storage[side] = right->storage[side];
		right->storage[side] = storage;
	}
}

/*
 * Replace what is known of a table, except for its storage; the other one gets the rest, to be
 * freed.
 */
static void
replace_definition(Table *table, Table *fresh)
{
	Table		known = *table;

	if (table->stage == NOT_BEGUN)
	{
		*table = *fresh;
		table->skipped = known.skipped;
		*fresh = known;
		fresh->skipped = NULL;
		swap_storage(table, fresh);
		return;
	}
	if (fresh->obstacle != NULL)
		set_obstacle(table, fresh->obstacle);
	else if (!is_same_definition(table, fresh))
		set_obstacle(table, "its definition, or what is published of it, was changed in the meantime");
}

void
reload_tables(Tables *tables, PGconn *publisher, PGconn *subscriber,
			  const Subscription *subscription, bool keeps_storage)
{
	Tables		fresh = load_tables(publisher, subscriber, subscription);
	int			f = 0;

	for (int i = 0; i < tables->count; i++)
	{
		Table	   *table = &tables->tables[i];
		int			order = -1;

		while (f < fresh.count &&
			   (order = order_of_names(table->schema, table->name, fresh.tables[f].schema,
									   fresh.tables[f].name)) > 0)
			f++;
		if (table->stage == DONE || table->obstacle != NULL)
			continue;
		if (f == fresh.count || order != 0)
		{
			set_obstacle(table, "it was dropped, or left the subscription, in the meantime");
			continue;
		}
		replace_definition(table, &fresh.tables[f]);
		if (!keeps_storage)
			swap_storage(table, &fresh.tables[f]);
	}
	for (int i = 0; i < fresh.count; i++)
		free_table(&fresh.tables[i]);
	free(fresh.tables);
}

static Table *
find_table(Tables *tables, const char *schema, const char *name)
{
	for (int i = 0; i < tables->count; i++)
		if (strcmp(tables->tables[i].name, name) == 0 &&
			strcmp(tables->tables[i].schema, schema) == 0)
			return &tables->tables[i];
	return NULL;
}

void
note_synchronization(Tables *tables, PGconn *subscriber, const Subscription *subscription,
					 const char *lsn)
{
	PQExpBufferData sql;
	PGresult   *result;

	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql,
					  "SELECT n.nspname, c.relname FROM pg_subscription_rel sr"
					  " JOIN pg_class c ON c.oid = sr.srrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
					  " WHERE sr.srsubid = %s AND (sr.srsubstate <> 'r' OR sr.srsublsn > ",
					  subscription->oid);
	append_literal(&sql, lsn);
	appendPQExpBufferChar(&sql, ')');
	result = query(subscriber, sql.data);
	termPQExpBuffer(&sql);
	for (int i = 0; i < PQntuples(result); i++)
	{
		Table	   *table = find_table(tables, PQgetvalue(result, i, 0), PQgetvalue(result, i, 1));

		if (table != NULL && table->stage != DONE)
			set_obstacle(table, "it is being synchronized");
	}
	PQclear(result);
}

/*
 * Note a skipped transaction with its tables, whose names are taken from the statements that
 * skipped_changes() returns.  Without the right to see these, it is only listed.
 */
static void
note_tables_of(Tables *tables, PGconn *subscriber, const char *id)
{
	PQExpBufferData sql;
	PGresult   *result;

	execute(subscriber, "SAVEPOINT skipped");
	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql,
					  "SELECT n.nspname, c.relname FROM (SELECT DISTINCT to_regclass(name) AS oid"
					  " FROM parallel_apply.skipped_changes(%s), regexp_split_to_table(substring(statement from"
					  " '^(?:INSERT INTO|UPDATE|DELETE FROM|TRUNCATE) ((?:(?:ONLY )?(?:\"[^\"]*\"|[^\" ,;])+(?:, )?)+)'),"
					  " ', (?:ONLY )?|^ONLY ') name WHERE name <> '') t"
					  " JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace", id);
	result = PQexec(subscriber, sql.data);
	for (int i = 0; i < PQntuples(result); i++)
	{
		Table	   *table = find_table(tables, PQgetvalue(result, i, 0), PQgetvalue(result, i, 1));
		char	   *before;

		if (table == NULL)
			continue;
		before = table->skipped;
		table->skipped = before ? psprintf("%s, %s", before, id) : pg_strdup(id);
		free(before);
	}
	PQclear(result);
	execute(subscriber, "ROLLBACK TO skipped; RELEASE skipped");
	termPQExpBuffer(&sql);
}

void
note_skipped(Tables *tables, PGconn *subscriber, Subscription *subscription)
{
	PQExpBufferData sql;
	PGresult   *result;

	initPQExpBuffer(&sql);
	appendPQExpBuffer(&sql,
					  "SELECT id, remote_xid, commit_time, changes FROM parallel_apply.skipped_transactions"
					  " WHERE subid = %s AND id > %s ORDER BY id",
					  subscription->oid, subscription->last_skipped ? subscription->last_skipped : "0");
	result = query(subscriber, sql.data);
	termPQExpBuffer(&sql);
	for (int i = 0; i < PQntuples(result); i++)
	{
		const char *id = PQgetvalue(result, i, 0);

		pg_log_warning("subscription \"%s\" has skipped transaction %s of the publisher, committed at %s, with %s changes; it is stored with number %s",
					   subscription->name, PQgetvalue(result, i, 1), PQgetvalue(result, i, 2),
					   PQgetvalue(result, i, 3), id);
		note_tables_of(tables, subscriber, id);
		free(subscription->last_skipped);
		subscription->last_skipped = pg_strdup(id);
	}
	PQclear(result);
}
