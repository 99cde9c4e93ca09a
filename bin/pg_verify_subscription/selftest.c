/*-------------------------------------------------------------------------
 * selftest.c
 *	  Test what needs no server: ranges.c, compare.c, pace.c, output.c.
 *
 * A program of its own, in builds with SELFTEST=1; t/verify/verify_pure.pl runs it.  Prints a
 * line for each fault, and exits with 1 if there is any.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "compare.h"
#include "output.h"
#include "pace.h"
#include "ranges.h"

static int	faults = 0;

static void
expect(bool is_right, const char *what)
{
	if (is_right)
		return;
	printf("%s\n", what);
	faults++;
}

static void
expect_text(PQExpBuffer text, const char *expected)
{
	if (strcmp(text->data, expected) != 0)
	{
		printf("expected: %s\nfound:    %s\n", expected, text->data);
		faults++;
	}
	resetPQExpBuffer(text);
}

/*** rows ***/

#define KEYS 8
#define VERSIONS 4
#define MAX_ROWS 4000

/* Rows are numbers: key * VERSIONS + version.  Several keys have the same hash. */
typedef struct Model
{
	int			rows[2][MAX_ROWS];
	int			count[2];
	int			next[2];
	bool		has_keys;
	int			missing[2];
	int			changed;
} Model;

static int
key_hash_of(int row)
{
	return row / VERSIONS % 3;
}

static int
order_rows(const void *left, const void *right)
{
	int			l = *(const int *) left;
	int			r = *(const int *) right;

	return key_hash_of(l) != key_hash_of(r) ? key_hash_of(l) - key_hash_of(r) : l - r;
}

static Row *
next_row(Model *model, Side side)
{
	Row		   *row;
	char		key[20];
	int			number;

	if (model->next[side] == model->count[side])
		return NULL;
	number = model->rows[side][model->next[side]++];
	row = pg_malloc0(sizeof(Row));
	row->key_hash = key_hash_of(number);
	row->hash = number;
	row->columns = pg_malloc0(sizeof(char *));
	snprintf(key, sizeof(key), "%d", number / VERSIONS);
	row->key = model->has_keys ? pg_strdup(key) : NULL;
	return row;
}

static void
take_difference(void *arg, const Row *publisher, const Row *subscriber)
{
	Model	   *model = arg;

	if (publisher == NULL)
		model->missing[PUBLISHER]++;
	else if (subscriber == NULL)
		model->missing[SUBSCRIBER]++;
	else
	{
		model->changed++;
		expect(strcmp(publisher->key, subscriber->key) == 0, "a changed row has one key");
	}
}

static int
count_row(const Model *model, int side, int row)
{
	int			n = 0;

	for (int i = 0; i < model->count[side]; i++)
		n += model->rows[side][i] == row;
	return n;
}

/* The rows of both sides arrive in any order. */
static void
compare_model(Model *model)
{
	Comparison *comparison = begin_comparison(take_difference, model, 1);

	while (wants_row(comparison, PUBLISHER) || wants_row(comparison, SUBSCRIBER))
	{
		Side		side = rand() % SIDES;

		if (wants_row(comparison, side))
			give_row(comparison, side, next_row(model, side));
	}
	end_comparison(comparison);
}

/* Compare the result with what the numbers of equal rows say. */
static void
check_rows(Model *model)
{
	int			missing[2] = {0, 0};
	int			changed = 0;

	for (int key = 0; key < KEYS; key++)
	{
		int			surplus[2] = {0, 0};
		int			pairs;

		for (int version = 0; version < VERSIONS; version++)
		{
			int			row = key * VERSIONS + version;
			int			more = count_row(model, PUBLISHER, row) - count_row(model, SUBSCRIBER, row);

			surplus[PUBLISHER] += Max(more, 0);
			surplus[SUBSCRIBER] += Max(-more, 0);
		}
		pairs = model->has_keys ? Min(surplus[0], surplus[1]) : 0;
		changed += pairs;
		missing[SUBSCRIBER] += surplus[PUBLISHER] - pairs;
		missing[PUBLISHER] += surplus[SUBSCRIBER] - pairs;
	}
	for (int side = 0; side < 2; side++)
		qsort(model->rows[side], model->count[side], sizeof(int), order_rows);
	compare_model(model);
	expect(model->missing[PUBLISHER] == missing[PUBLISHER], "rows missing on the publisher");
	expect(model->missing[SUBSCRIBER] == missing[SUBSCRIBER], "rows missing on the subscriber");
	expect(model->changed == changed, "changed rows");
}

static void
test_rows(void)
{
	static Model model;

	srand(1);
	for (int round = 0; round < 2000; round++)
	{
		memset(&model, 0, sizeof(model));
		model.has_keys = round % 2 == 0;
		for (int side = 0; side < 2; side++)
		{
			model.count[side] = rand() % 30;
			for (int i = 0; i < model.count[side]; i++)
				model.rows[side][i] = rand() % (KEYS * VERSIONS);
		}
		check_rows(&model);
	}

	/* more equal rows than can be kept */
	memset(&model, 0, sizeof(model));
	model.count[PUBLISHER] = MAX_ROWS;
	model.count[SUBSCRIBER] = 1;
	check_rows(&model);
}

/*** the rest ***/

static void
test_buckets(PQExpBuffer text)
{
	Bucket		left[] = {{1, 10, "5"}, {3, 10, "-7"}, {4, 2, "9"}, {9, 1, "1"}};
	Bucket		right[] = {{0, 1, "1"}, {1, 10, "5"}, {3, 10, "7"}, {4, 3, "9"}};

	expect(compare_buckets(left, 4, left, 4, text) == 0, "equal buckets");
	expect(compare_buckets(left, 4, right, 4, text) == 4, "buckets that differ");
	expect_text(text, "0,3,4,9");
	expect(compare_buckets(left, 0, right, 2, text) == 2, "an empty side");
	expect_text(text, "0,1");
	expect(buckets_for(0) == 16 && buckets_for(1e6) == 8192 && buckets_for(1e12) == 65536,
		   "number of buckets");
}

static void
test_queries(PQExpBuffer text)
{
	char	   *columns[] = {"a", "b\"c"};
	char	   *low[] = {"it's \\"};
	Table		table = {.schema = "s",.name = "t",.ncolumns = 2,.columns = columns,.nkey = 1,
	.key = columns,.nrange = 1,.filter = "a > 0"};
	Range		range = {.nvalues = 1,.low = low,.buckets = 16};

	build_bucket_query(text, &table, PUBLISHER, &range, HASH_FAST);
	expect_text(text,
				"SELECT rh & 15, count(*), sum(rh) FROM (SELECT hashtextextended(ROW(\"a\", \"b\"\"c\")::text COLLATE \"C\", 0) AS rh FROM ONLY \"s\".\"t\""
				" WHERE true AND (a > 0) AND (\"a\") > (E'it''s \\\\') OFFSET 0) hashes GROUP BY 1 ORDER BY 1");
	table.has_partitions[PUBLISHER] = true;
	table.filter = NULL;
	build_boundary_query(text, &table, NULL, RANGE_ROWS);
	expect_text(text,
				"SELECT \"a\"::text FROM (SELECT \"a\" FROM \"s\".\"t\" WHERE true ORDER BY \"a\" OFFSET 99999 LIMIT 1) boundary");
	build_storage_query(text, &table, PUBLISHER);
	expect_text(text,
				"SELECT string_agg(relid::oid || ':' || coalesce(pg_relation_filenode(relid), 0), ',' ORDER BY relid::oid) "
				"FROM pg_partition_tree(E'\"s\".\"t\"')");
	build_storage_query(text, &table, SUBSCRIBER);
	expect_text(text,
				"SELECT oid::oid || ':' || coalesce(pg_relation_filenode(oid), 0) FROM (SELECT E'\"s\".\"t\"'::regclass) files(oid)");
}

static void
test_expressions(void)
{
	static const char *const good[] = {
		"(v > 50)", "((a = 1) OR (b <> ')'::text))", "x = 'it''s; --'", "\"a;)\" IS NULL",
		"(x <> '\\') AND (y = 'it\\''s')", "\"e\\\" = B'1'", "date 'e'"
	};
	static const char *const bad[] = {
		"true) OR (true", "true); COMMIT; (", "true;", "(true", "true)", "x -- y", "x /* y */",
		"$$'$$", "x = 'y", "\"y", "x = E'a\\' ; --'", "x = e'\\'') --'"
	};

	for (int i = 0; i < lengthof(good); i++)
		expect(is_one_expression(good[i]), good[i]);
	for (int i = 0; i < lengthof(bad); i++)
		expect(!is_one_expression(bad[i]), bad[i]);
}

/* Read tables with ranges of various sizes, whose numbers of rows are estimated badly. */
static void
test_pace(void)
{
	Pace		pace = {.rate = 5000};
	Pace		no_limit = {0};
	double		now = 1e6;
	double		began = now;
	double		rows = 0;

	for (int i = 0; i < 1000; i++)
	{
		double		noted = rand() % 5000;
		double		found = noted / 2 + rand() % 2500;

		now += pace_delay(&pace, now);
		expect(rows <= (now - began) / 1000 * 5000 + 0.001, "no faster than the limit");
		pace_begin(&pace, now, noted);
		now += rand() % 10;		/* which the servers need */
		pace_correct(&pace, noted, found);
		rows += found;
	}
	expect(rows >= 0.95 * (now - began) / 1000 * 5000, "nor much slower");

	now += 3600000;
	expect(pace_delay(&pace, now) == 0, "no delay after a stop");
	pace_begin(&pace, now, 5000);
	expect(pace_delay(&pace, now) > 999, "but no faster either");

	pace_begin(&no_limit, now, 1e9);
	expect(pace_delay(&no_limit, now) == 0 && pace_range_rows(&no_limit) == RANGE_ROWS, "no limit");
	expect(pace_range_rows(&pace) == 5000, "ranges of a second");
}

static void
test_output(PQExpBuffer text)
{
	char	   *columns[] = {"id", "v"};
	char	   *here[] = {"1", "a\n\"b\""};
	char	   *there[] = {"1", NULL};
	Table		table = {.shown = "s.t",.ncolumns = 2,.columns = columns};
	Row			publisher = {.key = "(1,\"x\")",.columns = here};
	Row			subscriber = {.key = "(1,\"x\")",.columns = there};
	Row			keyless = {.hash = -1,.columns = here};
	Output		output = {.subscription = "sub",.with_values = true};

	append_difference(text, &output, &table, &publisher, &subscriber);
	expect_text(text, "s.t: (1,\"x\"): differs in: v: v=a\\n\"b\" on publisher; v=NULL on subscriber\n");
	output.with_values = false;
	append_difference(text, &output, &table, NULL, &keyless);
	expect_text(text, "s.t: hash ffffffffffffffff: missing on publisher\n");
	output.format = FORMAT_CSV;
	append_difference(text, &output, &table, &publisher, NULL);
	expect_text(text, "sub,s.t,missing on subscriber,\"(1,\"\"x\"\")\",\n");
	output.format = FORMAT_JSON;
	output.with_values = true;
	append_difference(text, &output, &table, &publisher, &subscriber);
	expect_text(text,
				"{\"subscription\": \"sub\", \"relation\": \"s.t\", \"result\": \"differs\", \"key\": \"(1,\\\"x\\\")\", "
				"\"columns\": [\"v\"], \"publisher\": {\"id\": \"1\", \"v\": \"a\\u000a\\\"b\\\"\"}, "
				"\"subscriber\": {\"id\": \"1\", \"v\": null}}\n");
	table.obstacle = "it is \"new\"";
	append_summary(text, &output, &table);
	expect_text(text,
				"{\"subscription\": \"sub\", \"relation\": \"s.t\", \"result\": \"not compared\", \"reason\": \"it is \\\"new\\\"\"}\n");
	expect(!is_different(&table), "a table that was not compared does not differ");

	table.obstacle = NULL;
	table.skipped = "3, 5";
	table.changed = 1;
	append_summary(text, &output, &table);
	expect_text(text,
				"{\"subscription\": \"sub\", \"relation\": \"s.t\", \"result\": \"different\", \"publisher_rows\": 0, "
				"\"subscriber_rows\": 0, \"missing_on_subscriber\": 0, \"missing_on_publisher\": 0, \"differing\": 1, "
				"\"skipped_transactions\": [3, 5]}\n");
	append_progress(text, 1, 3, 250000, 1e6, 2);
	expect_text(text,
				"1 of 3 tables, 250000 of about 1000000 rows (25%), 125000 rows per second, about 0:00:06 left");
	append_progress(text, 1, 3, 200, 100, 0);
	expect_text(text, "1 of 3 tables, 200 of about 100 rows (100%), 0 rows per second");
	append_progress(text, 0, 3, 50, -1, 1);
	expect_text(text, "0 of 3 tables, 50 rows, 50 rows per second");
}

int
main(void)
{
	PQExpBufferData text;

	initPQExpBuffer(&text);
	test_rows();
	test_buckets(&text);
	test_queries(&text);
	test_expressions();
	test_pace();
	test_output(&text);
	termPQExpBuffer(&text);
	return faults == 0 ? 0 : 1;
}
