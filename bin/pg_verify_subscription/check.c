/*-------------------------------------------------------------------------
 * check.c
 *	  Compare tables by pairs of sessions.
 *
 * Each pair has a session of both sides, with the common snapshots, and works on one
 * range at a time.  All pairs run at the same time; the few rows that differ are
 * fetched while the others wait.
 *
 * A snapshot does not show what was truncated or rewritten since: such a table has no
 * rows in it.  So the identity of the files of a table is compared with the one from
 * before the snapshots, after they were read and while they are locked.  The lock is
 * that of a query, and is released with a savepoint, so a subscription may have more
 * tables than the server has locks.
 *
 * An error of a server is the reason why a table could not be compared; the others are.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>
#include <unistd.h>

#include "common/logging.h"

#include "check.h"

#define PROGRESS_MS 1000

/* Tables whose statistics are missing have as many buckets as one with this number of rows. */
#define UNKNOWN_ROWS 1e6

typedef struct Pair
{
	PGconn	   *sessions[SIDES];
	Table	   *table;			/* NULL: has nothing to do */
	Range		range;
	bool		is_busy[SIDES];
	PGresult   *buckets[SIDES];
} Pair;

/* State of a table while it is compared. */
typedef struct Course
{
	bool		has_begun;
	bool		is_planned;		/* no range is left */
	bool		is_shown;
	int			running;		/* number of ranges in work */
	char	  **low;			/* where the next range begins */
} Course;

typedef struct Check
{
	Tables	   *tables;
	Course	   *courses;		/* of each table */
	int			next;			/* table that is being divided */
	const CheckOptions *options;
	const Output *output;
	PGconn	   *planner;
	Pair	   *pairs;
	double		began_at;
	double		shown_at;
	long long	rows;			/* of the publisher */
	int			done;			/* tables */
} Check;

/* Where the rows of a range that differ are taken from. */
typedef struct Fetch
{
	Check	   *check;
	Pair	   *pair;
	bool		has_ended[SIDES];
} Fetch;

static void
write_out(PQExpBuffer text)
{
	fwrite(text->data, 1, text->len, stdout);
	if (fflush(stdout) != 0 || ferror(stdout))
	{
		pg_log_error("could not write the output: %m");
		exit(1);
	}
	termPQExpBuffer(text);
}

static Course *
course_of(Check *check, const Table *table)
{
	return &check->courses[table - check->tables->tables];
}

/* Note an error of a side as the reason why a table is not compared. */
static void
note_error(Table *table, Side side, PGconn *session, const PGresult *result)
{
	PQExpBufferData text;
	char	   *message = message_of(result, session);

	if (PQstatus(session) != CONNECTION_OK)
		fail_with(session, side == PUBLISHER ? "connection to the publisher lost" :
				  "connection to the subscriber lost");
	initPQExpBuffer(&text);
	appendPQExpBuffer(&text, "%s: %s", side == PUBLISHER ? "publisher" : "subscriber", message);
	set_obstacle(table, text.data);
	termPQExpBuffer(&text);
	free(message);
}

/*** ranges ***/

static char **
copy_values(PGresult *result, int n)
{
	char	  **values = pg_malloc0(n * sizeof(char *));

	for (int i = 0; i < n; i++)
		values[i] = pg_strdup(PQgetvalue(result, 0, i));
	return values;
}

static void
free_values(char **values, int n)
{
	for (int i = 0; values != NULL && i < n; i++)
		free(values[i]);
	free(values);
}

/*
 * Return the end of the range that begins after low, in the order of the key; NULL: it is
 * the last one.
 */
static char **
find_end(Check *check, Table *table, char **low)
{
	PQExpBufferData sql;
	PGresult   *result;
	char	  **high = NULL;

	if (table->nrange == 0 || (table->estimate >= 0 && table->estimate < 2 * RANGE_ROWS))
		return NULL;
	initPQExpBuffer(&sql);
	appendPQExpBufferStr(&sql, "SAVEPOINT plan; ");
	build_boundary_query(&sql, table, low);
	if (!PQsendQuery(check->planner, sql.data))
		fail_with(check->planner, "could not send a query to the publisher");
	while ((result = PQgetResult(check->planner)) != NULL)
	{
		if (PQresultStatus(result) == PGRES_FATAL_ERROR)
			note_error(table, PUBLISHER, check->planner, result);
		else if (PQntuples(result) > 0)
			high = copy_values(result, table->nrange);
		PQclear(result);
	}
	execute(check->planner, "ROLLBACK TO plan; RELEASE plan");
	termPQExpBuffer(&sql);
	return high;
}

/* Give the next range to a pair; return false if there is none. */
static bool
take_range(Check *check, Pair *pair)
{
	for (; check->next < check->tables->count; check->next++)
	{
		Table	   *table = &check->tables->tables[check->next];
		Course	   *course = &check->courses[check->next];
		double		rows = table->estimate >= 0 ? table->estimate : UNKNOWN_ROWS;

		if (table->obstacle == NULL && !course->is_planned)
		{
			pair->range.nvalues = table->nrange;
			pair->range.low = course->low;
			pair->range.high = find_end(check, table, course->low);
			course->has_begun = true;
			course->is_planned = pair->range.high == NULL;
			course->low = NULL;
			if (!course->is_planned)
			{
				course->low = pg_malloc0(table->nrange * sizeof(char *));
				for (int i = 0; i < table->nrange; i++)
					course->low[i] = pg_strdup(pair->range.high[i]);
				rows = RANGE_ROWS;
			}
			else if (pair->range.low != NULL)
				rows = RANGE_ROWS;
			pair->range.buckets = buckets_for(rows);
			if (table->obstacle == NULL)
			{
				course->running++;
				pair->table = table;
				return true;
			}
		}
		course->is_planned = true;
	}
	return false;
}

/*** a pair ***/

/* Have both sides compute the buckets of the pair's range. */
static void
begin_range(Check *check, Pair *pair)
{
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		PQExpBufferData sql;

		initPQExpBuffer(&sql);
		appendPQExpBufferStr(&sql, "SAVEPOINT range; ");
		build_bucket_query(&sql, pair->table, side, &pair->range, check->options->hash);
		appendPQExpBufferStr(&sql, "; ");
		build_storage_query(&sql, pair->table);
		if (!PQsendQuery(pair->sessions[side], sql.data))
			fail_with(pair->sessions[side], "could not send a query");
		pair->is_busy[side] = true;
		termPQExpBuffer(&sql);
	}
}

/* Take all results of a side, which has finished. */
static void
take_results(Pair *pair, Side side)
{
	PGresult   *result;

	while ((result = PQgetResult(pair->sessions[side])) != NULL)
	{
		if (PQresultStatus(result) == PGRES_FATAL_ERROR)
			note_error(pair->table, side, pair->sessions[side], result);
		else if (PQresultStatus(result) == PGRES_TUPLES_OK && pair->buckets[side] == NULL)
		{
			pair->buckets[side] = result;
			continue;
		}
		else if (PQresultStatus(result) == PGRES_TUPLES_OK &&
				 strcmp(PQgetvalue(result, 0, 0), pair->table->storage[side]) != 0)
			set_obstacle(pair->table, side == PUBLISHER ?
						 "it was truncated or rewritten on the publisher in the meantime" :
						 "it was truncated or rewritten on the subscriber in the meantime");
		PQclear(result);
	}
	pair->is_busy[side] = false;
}

/* Take what a side has sent; its state is busy until all is there. */
static void
take_input(Pair *pair, Side side)
{
	if (!PQconsumeInput(pair->sessions[side]))
		note_error(pair->table, side, pair->sessions[side], NULL);

	/*
	 * The first result may be there and the second not: PQgetResult() waits
	 * for it then, for no longer than the second query takes.
	 */
	if (!PQisBusy(pair->sessions[side]))
		take_results(pair, side);
}

/*** rows that differ ***/

static char *
copy_value(PGresult *result, int column)
{
	return PQgetisnull(result, 0, column) ? NULL : pg_strdup(PQgetvalue(result, 0, column));
}

static Row *
next_row(void *arg, Side side)
{
	Fetch	   *fetch = arg;
	Pair	   *pair = fetch->pair;
	PGresult   *result;
	Row		   *row = NULL;

	while (!fetch->has_ended[side] && row == NULL)
	{
		result = PQgetResult(pair->sessions[side]);
		if (result == NULL)
		{
			fetch->has_ended[side] = true;
			break;
		}
		if (PQresultStatus(result) == PGRES_SINGLE_TUPLE)
		{
			row = pg_malloc0(sizeof(Row));
			row->key_hash = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
			row->hash = strtoll(PQgetvalue(result, 0, 1), NULL, 10);
			row->key = copy_value(result, 2);
			row->columns = pg_malloc0(pair->table->ncolumns * sizeof(char *));
			for (int i = 0; i < pair->table->ncolumns; i++)
				row->columns[i] = copy_value(result, 3 + i);
		}
		else if (PQresultStatus(result) == PGRES_FATAL_ERROR)
			note_error(pair->table, side, pair->sessions[side], result);
		PQclear(result);
	}
	return row;
}

static void
take_difference(void *arg, const Row *publisher, const Row *subscriber)
{
	Fetch	   *fetch = arg;
	Table	   *table = fetch->pair->table;
	PQExpBufferData text;

	if (table->obstacle != NULL)
		return;					/* one side has ended with an error */
	if (publisher == NULL)
		table->missing[PUBLISHER]++;
	else if (subscriber == NULL)
		table->missing[SUBSCRIBER]++;
	else
		table->changed++;
	initPQExpBuffer(&text);
	append_difference(&text, fetch->check->output, table, publisher, subscriber);
	write_out(&text);
}

/* Fetch the rows of these buckets from both sides, and write those that differ. */
static void
fetch_rows(Check *check, Pair *pair, const char *buckets)
{
	Fetch		fetch = {.check = check,.pair = pair};

	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		PQExpBufferData sql;

		initPQExpBuffer(&sql);
		build_row_query(&sql, pair->table, side, &pair->range, check->options->hash, buckets,
						check->output->with_values);
		if (!PQsendQuery(pair->sessions[side], sql.data) ||
			!PQsetSingleRowMode(pair->sessions[side]))
			fail_with(pair->sessions[side], "could not send a query");
		termPQExpBuffer(&sql);
	}
	compare_rows(next_row, take_difference, &fetch, pair->table->ncolumns);
}

/*** a range that both sides have computed ***/

static int
read_buckets(PGresult *result, Bucket **buckets, long long *rows)
{
	int			n = PQntuples(result);

	*buckets = pg_malloc0(n * sizeof(Bucket));
	for (int i = 0; i < n; i++)
	{
		(*buckets)[i].number = atoi(PQgetvalue(result, i, 0));
		(*buckets)[i].rows = strtoll(PQgetvalue(result, i, 1), NULL, 10);
		(*buckets)[i].sum = PQgetvalue(result, i, 2);
		*rows += (*buckets)[i].rows;
	}
	return n;
}

static void
compare_range(Check *check, Pair *pair)
{
	Bucket	   *buckets[SIDES];
	int			count[SIDES];
	long long	before = pair->table->rows[PUBLISHER];
	PQExpBufferData different;

	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		count[side] = read_buckets(pair->buckets[side], &buckets[side], &pair->table->rows[side]);
	check->rows += pair->table->rows[PUBLISHER] - before;
	initPQExpBuffer(&different);
	if (compare_buckets(buckets[PUBLISHER], count[PUBLISHER], buckets[SUBSCRIBER],
						count[SUBSCRIBER], &different) > 0)
		fetch_rows(check, pair, different.data);
	termPQExpBuffer(&different);
	free(buckets[PUBLISHER]);
	free(buckets[SUBSCRIBER]);
}

static void
show_table(Check *check, Table *table)
{
	Course	   *course = course_of(check, table);
	PQExpBufferData text;

	if (course->is_shown || !course->is_planned || course->running > 0)
		return;
	course->is_shown = true;
	check->done++;
	initPQExpBuffer(&text);
	append_summary(&text, check->output, table);
	write_out(&text);
}

static void
end_range(Check *check, Pair *pair)
{
	Table	   *table = pair->table;

	if (table->obstacle == NULL)
		compare_range(check, pair);
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		execute(pair->sessions[side], "ROLLBACK TO range; RELEASE range");
		PQclear(pair->buckets[side]);
		pair->buckets[side] = NULL;
	}
	free_values(pair->range.low, pair->range.nvalues);
	free_values(pair->range.high, pair->range.nvalues);
	pair->table = NULL;
	course_of(check, table)->running--;
	if (table->obstacle != NULL)
		course_of(check, table)->is_planned = true;
	show_table(check, table);
}

/*** all of it ***/

static void
show_progress(Check *check, bool is_end)
{
	double		now = now_ms();
	double		seconds = (now - check->began_at) / 1000;

	if (!check->options->shows_progress || (!is_end && now - check->shown_at < PROGRESS_MS))
		return;
	check->shown_at = now;
	fprintf(stderr, "%s%d of %d tables, %lld rows, %.0f rows per second%s",
			isatty(fileno(stderr)) ? "\r" : "", check->done, check->tables->count, check->rows,
			seconds > 0 ? check->rows / seconds : 0,
			is_end || !isatty(fileno(stderr)) ? "\n" : "");
}

/* Wait until a session has something to read; take it. */
static void
wait_for_input(Check *check)
{
	struct pollfd *sockets = pg_malloc0(check->options->jobs * SIDES * sizeof(struct pollfd));

	for (int i = 0; i < check->options->jobs * SIDES; i++)
	{
		Pair	   *pair = &check->pairs[i / SIDES];

		/* poll() ignores a negative number */
		sockets[i].fd = pair->table != NULL && pair->is_busy[i % SIDES] ?
			PQsocket(pair->sessions[i % SIDES]) : -1;
		sockets[i].events = POLLIN;
	}
	if (poll(sockets, check->options->jobs * SIDES, PROGRESS_MS) < 0 && errno != EINTR)
	{
		pg_log_error("could not wait for the servers: %m");
		exit(1);
	}
	for (int i = 0; i < check->options->jobs * SIDES; i++)
		if (sockets[i].revents != 0)
			take_input(&check->pairs[i / SIDES], i % SIDES);
	free(sockets);
}

static void
run(Check *check)
{
	for (;;)
	{
		bool		is_working = false;

		for (int i = 0; i < check->options->jobs; i++)
		{
			Pair	   *pair = &check->pairs[i];

			if (pair->table != NULL && !pair->is_busy[PUBLISHER] && !pair->is_busy[SUBSCRIBER])
				end_range(check, pair);
			if (pair->table == NULL && take_range(check, pair))
				begin_range(check, pair);
			is_working |= pair->table != NULL;
		}
		show_progress(check, false);
		if (!is_working)
			return;
		wait_for_input(check);
	}
}

void
check_tables(Tables *tables, const CheckOptions *options, const Output *output,
			 const Target *targets, Position *position, PGconn *planner)
{
	Check		check = {
		.tables = tables,
		.courses = pg_malloc0(tables->count * sizeof(Course)),
		.options = options,
		.output = output,
		.planner = planner,
		.pairs = pg_malloc0(options->jobs * sizeof(Pair)),
		.began_at = now_ms()
	};

	for (int i = 0; i < options->jobs; i++)
		for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		{
			check.pairs[i].sessions[side] = connect_to(&targets[side], SESSION_SQL);
			import_snapshot(check.pairs[i].sessions[side], position->snapshots[side]);
		}
	release_slot(position);
	run(&check);
	for (int i = 0; i < tables->count; i++)
	{
		check.courses[i].is_planned = true;
		show_table(&check, &tables->tables[i]);
	}
	show_progress(&check, true);
	for (int i = 0; i < options->jobs; i++)
		for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
			PQfinish(check.pairs[i].sessions[side]);
	free(check.pairs);
	free(check.courses);
}
