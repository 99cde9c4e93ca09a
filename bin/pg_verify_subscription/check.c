/*-------------------------------------------------------------------------
 * check.c
 *	  Compare tables by pairs of sessions.
 *
 * Each pair has a session of both sides, in the common state, and works on one range at
 * a time.  All pairs run at the same time, also while the rows that differ are fetched, since
 * a pair that waits for another one would keep its locks.  A new common state is taken when
 * no pair has a range.
 *
 * A snapshot does not show what was truncated or rewritten since: such a table has no
 * rows in it.  So the identity of the files of a table is compared with the one from
 * before the snapshots, after they were read and while they are locked.  The lock is
 * that of a query, and is released with a savepoint, so a subscription may have more
 * tables than the server has locks.  The pair does so together with its next query, so that
 * a small table takes a single round trip; without a next query, it does so at once.
 *
 * The locks of both sides can be part of a deadlock that no server sees: a transaction of
 * the publisher has truncated a table, and waits in its COMMIT for the subscriber; its
 * apply waits for the lock of a session here, and the session of the publisher for that
 * of the transaction.  So no session waits long for a lock.  The pair then releases what it
 * has, and repeats the range.  It does the same if a server has found a deadlock.
 *
 * An error of a server is the reason why a table could not be compared; the others are.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>
#include <unistd.h>

#include "common/logging.h"

#include "check.h"
#include "pace.h"

#define PROGRESS_MS 1000

/* While a session waits for a lock, others keep theirs for no longer than this. */
#define LIMIT_LOCK_WAITS "SET LOCAL lock_timeout = '1s'"

/* Tables whose statistics are missing have as many buckets as one with this number of rows. */
#define UNKNOWN_ROWS 1e6

typedef struct Check Check;

typedef struct Pair
{
	Check	   *check;
	PGconn	   *sessions[SIDES];
	Table	   *table;			/* NULL: has nothing to do */
	Range		range;
	double		noted_rows;		/* for the pace */
	bool		has_locks;
	bool		must_repeat;	/* the range: a lock was not available */
	bool		is_busy[SIDES];
	PGresult   *buckets[SIDES];
	Comparison *comparison;		/* while the rows of the range that differ are
								 * fetched */
} Pair;

/* State of a table while it is compared. */
typedef struct Course
{
	bool		is_planned;		/* no range is left */
	int			running;		/* number of ranges in work */
	char	  **low;			/* where the next range begins */
} Course;

struct Check
{
	Common	   *common;
	Tables	   *tables;
	Course	   *courses;		/* of each table */
	int			next;			/* table that is being divided */
	const CheckOptions *options;
	const Output *output;
	Pair	   *pairs;
	Pace		pace;
	bool		has_advanced;	/* in the present common state */
	double		began_ms;
	double		shown_ms;
	int			progress_width; /* of the line that is on the terminal */
	long long	rows;			/* of the publisher */
	int			done;			/* tables */
};

static void
write_out(Check *check, PQExpBuffer text)
{
	if (check->progress_width > 0)
		fprintf(stderr, "\r%*s\r", check->progress_width, "");
	check->progress_width = 0;
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
 * Set the end of the range that begins after low, in the order of the key; NULL: it is the
 * last one.  Return false if the table is locked.
 */
static bool
find_end(Check *check, Table *table, char **low, char ***high)
{
	PGconn	   *planner = check->common->sessions[PUBLISHER];
	int			rows = pace_range_rows(&check->pace);
	PQExpBufferData sql;
	PGresult   *result;
	bool		is_locked = false;

	*high = NULL;
	if (table->nrange == 0 || (table->estimate >= 0 && table->estimate < 2 * rows))
		return true;
	initPQExpBuffer(&sql);
	appendPQExpBufferStr(&sql, "SAVEPOINT plan; " LIMIT_LOCK_WAITS "; ");
	build_boundary_query(&sql, table, low, rows);
	if (!PQsendQuery(planner, sql.data))
		fail_with(planner, "could not send a query to the publisher");
	while ((result = PQgetResult(planner)) != NULL)
	{
		if (failed_by_lock(result))
			is_locked = true;
		else if (PQresultStatus(result) == PGRES_FATAL_ERROR)
			note_error(table, PUBLISHER, planner, result);
		else if (PQntuples(result) > 0)
			*high = copy_values(result, table->nrange);
		PQclear(result);
	}
	execute(planner, "ROLLBACK TO plan; RELEASE plan");
	termPQExpBuffer(&sql);
	return !is_locked;
}

/* Return the next table that has a range left, or NULL. */
static Table *
next_table(Check *check)
{
	for (; check->next < check->tables->count; check->next++)
	{
		Table	   *table = &check->tables->tables[check->next];
		Course	   *course = &check->courses[check->next];

		if (table->obstacle == NULL && !course->is_planned)
			return table;
		course->is_planned = true;
	}
	return NULL;
}

/* Give the next range to a pair; return false if there is none, or none yet. */
static bool
take_range(Check *check, Pair *pair)
{
	Table	   *table;

	while ((table = next_table(check)) != NULL)
	{
		Course	   *course = course_of(check, table);
		Range	   *range = &pair->range;
		double		rows = pace_range_rows(&check->pace);

		range->nvalues = table->nrange;
		range->low = course->low;
		if (!find_end(check, table, course->low, &range->high))
			return false;
		table->stage = BEGUN;
		course->is_planned = range->high == NULL;
		course->low = NULL;
		if (!course->is_planned)
		{
			course->low = pg_malloc0(table->nrange * sizeof(char *));
			for (int i = 0; i < table->nrange; i++)
				course->low[i] = pg_strdup(range->high[i]);
		}
		else if (range->low == NULL)
			rows = table->estimate >= 0 ? table->estimate : UNKNOWN_ROWS;
		range->buckets = buckets_for(rows);
		pair->noted_rows = rows;
		if (table->obstacle == NULL)
		{
			course->running++;
			pair->table = table;
			return true;
		}
	}
	return false;
}

/*** a pair ***/

/* Does it wait for what a session of it has yet to send? */
static bool
is_busy(const Pair *pair)
{
	return pair->is_busy[PUBLISHER] || pair->is_busy[SUBSCRIBER];
}

static void
forget_buckets(Pair *pair)
{
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		PQclear(pair->buckets[side]);
		pair->buckets[side] = NULL;
	}
}

/* Have both sides compute the buckets of the pair's range, also once more. */
static void
begin_range(Check *check, Pair *pair)
{
	pair->must_repeat = false;
	forget_buckets(pair);
	pace_begin(&check->pace, now_ms(), pair->noted_rows);
	check->has_advanced = true;
	pair->has_locks = true;
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		PQExpBufferData sql;

		initPQExpBuffer(&sql);
		appendPQExpBufferStr(&sql, "ROLLBACK TO range; ");
		build_bucket_query(&sql, pair->table, side, &pair->range, check->options->hash);
		appendPQExpBufferStr(&sql, "; ");
		build_storage_query(&sql, pair->table, side);
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
		if (failed_by_lock(result))
			pair->must_repeat = true;
		else if (PQresultStatus(result) == PGRES_FATAL_ERROR)
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

/*** rows that differ ***/

static char *
copy_value(PGresult *result, int column)
{
	return PQgetisnull(result, 0, column) ? NULL : pg_strdup(PQgetvalue(result, 0, column));
}

static Row *
read_row(PGresult *result, int ncolumns)
{
	Row		   *row = pg_malloc0(sizeof(Row));

	row->key_hash = strtoll(PQgetvalue(result, 0, 0), NULL, 10);
	row->hash = strtoll(PQgetvalue(result, 0, 1), NULL, 10);
	row->key = copy_value(result, 2);
	row->columns = pg_malloc0(ncolumns * sizeof(char *));
	for (int i = 0; i < ncolumns; i++)
		row->columns[i] = copy_value(result, 3 + i);
	return row;
}

static void
take_difference(void *arg, const Row *publisher, const Row *subscriber)
{
	Pair	   *pair = arg;
	Table	   *table = pair->table;
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
	append_difference(&text, pair->check->output, table, publisher, subscriber);
	write_out(pair->check, &text);
}

/* Have both sides send the rows of these buckets. */
static void
begin_fetch(const Check *check, Pair *pair, const char *buckets)
{
	pair->comparison = begin_comparison(take_difference, pair, pair->table->ncolumns);
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		PQExpBufferData sql;

		initPQExpBuffer(&sql);
		build_row_query(&sql, pair->table, side, &pair->range, check->options->hash, buckets,
						check->output->with_values);
		if (!PQsendQuery(pair->sessions[side], sql.data) ||
			!PQsetSingleRowMode(pair->sessions[side]))
			fail_with(pair->sessions[side], "could not send a query");
		pair->is_busy[side] = true;
		termPQExpBuffer(&sql);
	}
}

/* Take a result that has arrived. */
static void
take_row(Pair *pair, Side side)
{
	PGresult   *result = PQgetResult(pair->sessions[side]);

	if (result == NULL)
		give_row(pair->comparison, side, NULL);
	else if (PQresultStatus(result) == PGRES_SINGLE_TUPLE)
		give_row(pair->comparison, side, read_row(result, pair->table->ncolumns));
	else if (PQresultStatus(result) == PGRES_FATAL_ERROR)
		note_error(pair->table, side, pair->sessions[side], result);
	PQclear(result);
}

/* Compare rows as far as they have arrived.  A side that is ahead is not read from. */
static void
take_rows(Pair *pair)
{
	bool		has_taken;

	do
	{
		has_taken = false;
		for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
			while (wants_row(pair->comparison, side) && !PQisBusy(pair->sessions[side]))
			{
				take_row(pair, side);
				has_taken = true;
			}
	} while (has_taken);
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		pair->is_busy[side] = wants_row(pair->comparison, side);
}

/* Take what a side has sent; it is busy until all is there. */
static void
take_input(Pair *pair, Side side)
{
	if (!PQconsumeInput(pair->sessions[side]))
		note_error(pair->table, side, pair->sessions[side], NULL);

	/*
	 * The first of several results may be there and the next not:
	 * PQgetResult() waits for it then, for no longer than the second query
	 * takes.
	 */
	if (pair->comparison != NULL)
		take_rows(pair);
	else if (!PQisBusy(pair->sessions[side]))
		take_results(pair, side);
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

/* Compare the buckets of the pair's range, and begin to fetch the rows of those that differ. */
static void
compare_range(Check *check, Pair *pair)
{
	Bucket	   *buckets[SIDES];
	int			count[SIDES];
	long long	rows[SIDES] = {0, 0};
	PQExpBufferData different;

	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
	{
		count[side] = read_buckets(pair->buckets[side], &buckets[side], &rows[side]);
		pair->table->rows[side] += rows[side];
	}
	check->rows += rows[PUBLISHER];
	pace_correct(&check->pace, pair->noted_rows, Max(rows[PUBLISHER], rows[SUBSCRIBER]));
	initPQExpBuffer(&different);
	if (compare_buckets(buckets[PUBLISHER], count[PUBLISHER], buckets[SUBSCRIBER],
						count[SUBSCRIBER], &different) > 0)
		begin_fetch(check, pair, different.data);
	termPQExpBuffer(&different);
	free(buckets[PUBLISHER]);
	free(buckets[SUBSCRIBER]);
}

static void
show_table(Check *check, Table *table)
{
	Course	   *course = course_of(check, table);
	PQExpBufferData text;

	if (table->stage == DONE || !course->is_planned || course->running > 0)
		return;
	table->stage = DONE;
	check->done++;
	initPQExpBuffer(&text);
	append_summary(&text, check->output, table);
	write_out(check, &text);
}

static void
end_range(Check *check, Pair *pair)
{
	Table	   *table = pair->table;

	forget_buckets(pair);
	free_values(pair->range.low, pair->range.nvalues);
	free_values(pair->range.high, pair->range.nvalues);
	pair->table = NULL;
	course_of(check, table)->running--;
	if (table->obstacle != NULL)
		course_of(check, table)->is_planned = true;
	show_table(check, table);
}

/* Continue the range: both sides have sent what is needed for that. */
static void
continue_range(Check *check, Pair *pair)
{
	if (pair->comparison != NULL)
	{
		end_comparison(pair->comparison);
		pair->comparison = NULL;
	}
	else if (pair->table->obstacle == NULL && pair->must_repeat)
		begin_range(check, pair);
	else if (pair->table->obstacle == NULL)
		compare_range(check, pair);
	if (!is_busy(pair))
		end_range(check, pair);
}

/* Release the locks of a pair that has nothing to do. */
static void
release_locks(Pair *pair)
{
	if (pair->table != NULL || !pair->has_locks)
		return;
	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		execute(pair->sessions[side], "ROLLBACK TO range");
	pair->has_locks = false;
}

/*** all of it ***/

/* Return about how many rows all tables have; -1: not known. */
static double
estimate_rows(const Check *check)
{
	double		rows = 0;

	for (int i = 0; i < check->tables->count; i++)
	{
		const Table *table = &check->tables->tables[i];

		if (table->stage == DONE)
			rows += table->rows[PUBLISHER];
		else if (table->obstacle == NULL && table->estimate < 0)
			return -1;
		else if (table->obstacle == NULL)
			rows += Max(table->estimate, table->rows[PUBLISHER]);
	}
	return rows;
}

static void
show_progress(Check *check, bool is_end)
{
	double		now = now_ms();
	bool		is_terminal = isatty(fileno(stderr));
	PQExpBufferData text;

	if (!check->options->shows_progress || (!is_end && now - check->shown_ms < PROGRESS_MS))
		return;
	check->shown_ms = now;
	initPQExpBuffer(&text);
	append_progress(&text, check->done, check->tables->count, check->rows, estimate_rows(check),
					(now - check->began_ms) / 1000);
	fprintf(stderr, "%s%-*s%s", is_terminal ? "\r" : "", check->progress_width, text.data,
			is_end || !is_terminal ? "\n" : "");
	check->progress_width = is_end || !is_terminal ? 0 : (int) text.len;

	termPQExpBuffer(&text);
}

/* Wait until a session has something to read, and take it, or until a range may begin. */
static void
wait_for_input(Check *check)
{
	struct pollfd *sockets = pg_malloc0(check->options->jobs * SIDES * sizeof(struct pollfd));
	double		delay = pace_delay(&check->pace, now_ms());

	for (int i = 0; i < check->options->jobs * SIDES; i++)
	{
		Pair	   *pair = &check->pairs[i / SIDES];

		/* poll() ignores a negative number */
		sockets[i].fd = pair->table != NULL && pair->is_busy[i % SIDES] ?
			PQsocket(pair->sessions[i % SIDES]) : -1;
		sockets[i].events = POLLIN;
	}
	if (poll(sockets, check->options->jobs * SIDES,
			 delay > 0 ? (int) Min(delay + 1, PROGRESS_MS) : PROGRESS_MS) < 0 && errno != EINTR)
	{
		pg_log_error("could not wait for the servers: %m");
		exit(1);
	}
	for (int i = 0; i < check->options->jobs * SIDES; i++)
	{
		Pair	   *pair = &check->pairs[i / SIDES];

		if (pair->table != NULL && sockets[i].revents != 0)
			take_input(pair, i % SIDES);
	}
	free(sockets);
}

/* Bring all sessions into a common state: the first one, or the next. */
static void
begin_state(Check *check)
{
	for (int i = 0; i < check->options->jobs; i++)
		for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		{
			PGconn	  **session = &check->pairs[i].sessions[side];

			if (*session == NULL)
				*session = connect_to(&check->common->targets[side], SESSION_SQL);
			else
				execute(*session, "COMMIT");
		}
	take_common(check->common, check->pairs[0].sessions);
	for (int i = 0; i < check->options->jobs; i++)
		for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		{
			join_common(check->common, check->pairs[i].sessions[side], side);
			execute(check->pairs[i].sessions[side], LIMIT_LOCK_WAITS "; SAVEPOINT range");
		}
	close_common(check->common);
	check->has_advanced = false;
}

/* Has the common state been held for long enough? */
static bool
is_state_old(const Check *check)
{
	return check->options->chunk_ms > 0 && check->has_advanced &&
		now_ms() - check->common->began_ms > check->options->chunk_ms;
}

static void
run(Check *check)
{
	for (;;)
	{
		bool		is_old = is_state_old(check);
		bool		is_working = false;

		for (int i = 0; i < check->options->jobs; i++)
		{
			Pair	   *pair = &check->pairs[i];

			if (pair->table != NULL && !is_busy(pair))
				continue_range(check, pair);
			if (pair->table == NULL && !is_old && pace_delay(&check->pace, now_ms()) == 0 &&
				take_range(check, pair))
				begin_range(check, pair);
			release_locks(pair);
			is_working |= pair->table != NULL;
		}
		show_progress(check, false);
		if (!is_working && next_table(check) == NULL)
			return;
		if (!is_working && is_old)
			begin_state(check);
		else
			wait_for_input(check);
	}
}

void
check_tables(Common *common, const CheckOptions *options, const Output *output)
{
	Tables	   *tables = common->tables;
	Check		check = {
		.common = common,
		.tables = tables,
		.courses = pg_malloc0(tables->count * sizeof(Course)),
		.options = options,
		.output = output,
		.pairs = pg_malloc0(options->jobs * sizeof(Pair)),
		.pace = {.rate = options->max_rate},
		.began_ms = now_ms()
	};

	for (int i = 0; i < options->jobs; i++)
		check.pairs[i].check = &check;
	begin_state(&check);
	run(&check);
	for (int i = 0; i < tables->count; i++)
	{
		check.courses[i].is_planned = true;
		show_table(&check, &tables->tables[i]);
	}
	show_progress(&check, true);
	for (int i = 0; i < options->jobs; i++)
		for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
			disconnect(check.pairs[i].sessions[side]);
	end_common(common);
	free(check.pairs);
	free(check.courses);
}
