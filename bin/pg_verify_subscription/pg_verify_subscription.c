/*-------------------------------------------------------------------------
 * pg_verify_subscription.c
 *	  Is each table of a subscription as on its publisher?
 *
 * A client program for the subscriber.  For each subscription: find out what is
 * published (tables.c), take snapshots of both servers that show the same
 * transactions (position.c, common.c), and compare the tables in them (check.c).  ranges.c,
 * compare.c, pace.c and output.c know no server.  If that is requested, tables that differ
 * are then copied again (resync.c).
 *
 * Everything that it needs on a server to compare belongs to its sessions: snapshots, a
 * temporary slot, a pause of apply.  So nothing remains, however it ends.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <limits.h>
#include <math.h>

#include "common/logging.h"
#include "fe_utils/option_utils.h"
#include "fe_utils/simple_list.h"
#include "getopt_long.h"

#include "check.h"
#include "resync.h"
#include "server.h"

/* The publisher needs row filters and column lists in its views. */
#define OLDEST_PUBLISHER 150000

/* Exit statuses. */
#define STATUS_EQUAL 0
#define STATUS_NOT_VERIFIED 1
#define STATUS_DIFFERENT 2

typedef struct Options
{
	Target		subscriber;
	char	   *publisher;		/* connection string; NULL: the subscription's */
	SimpleStringList subscriptions;
	SimpleStringList tables;
	SimpleStringList excluded;
	CheckOptions check;
	Output		output;
	bool		must_resync;
	bool		is_verbose;
} Options;

static void
usage(const char *progname)
{
	printf("%s compares the tables of subscriptions with those of their publishers.\n\n", progname);
	printf("Usage:\n  %s [OPTION]... [DBNAME]\n", progname);
	printf("\nOptions:\n"
		   "  -d, --dbname=DBNAME          database of the subscriptions\n"
		   "      --subscription=NAME      verify this subscription only; can be repeated\n"
		   "      --publisher=CONNSTR      connect to the publisher with this string, not with\n"
		   "                               that of the subscription\n"
		   "  -t, --table=TABLE            verify this table only; can be repeated\n"
		   "  -T, --exclude-table=TABLE    do not verify this table; can be repeated\n"
		   "  -j, --jobs=NUM               use this many pairs of connections\n"
		   "      --max-rate=ROWS          read at most this many rows per second of each side\n"
		   "      --chunk-snapshots=MINUTES\n"
		   "                               take new snapshots after this time\n"
		   "      --csv                    write CSV\n"
		   "      --json                   write JSON, one object per line\n"
		   "      --values                 show values of rows that differ\n"
		   "      --resync                 have tables that differ copied again, and wait for it\n"
		   "  -P, --progress               show progress\n"
		   "  -v, --verbose                say what is done\n"
		   "  -V, --version                output version information, then exit\n"
		   "  -?, --help                   show this help, then exit\n"
		   "\nConnection options:\n"
		   "  -h, --host=HOSTNAME          subscriber's host or socket directory\n"
		   "  -p, --port=PORT              subscriber's port\n"
		   "  -U, --username=USERNAME      user name to connect as\n"
		   "\nThe exit status is 0 if all tables are equal, 2 if any differs, and 1 if any\n"
		   "could not be compared, or copied again.\n");
}

static int
parse_jobs(const char *value)
{
	int			jobs = atoi(value);

	if (jobs < 1 || jobs > 256)
	{
		pg_log_error("number of jobs must be between 1 and 256");
		exit(STATUS_NOT_VERIFIED);
	}
	return jobs;
}

/* Return the milliseconds of a positive number of minutes, which may have a fraction. */
static double
parse_minutes(const char *value)
{
	char	   *end;
	double		minutes = strtod(value, &end);

	if (end == value || *end != '\0' || !(minutes > 0) || !isfinite(minutes))
	{
		pg_log_error("invalid value \"%s\" for option %s", value, "--chunk-snapshots");
		exit(STATUS_NOT_VERIFIED);
	}
	return minutes * 60000;
}

/* As for every program of PostgreSQL, they must be the first option. */
static void
show_help_or_version(int argc, char **argv, const char *progname)
{
	if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-?") == 0))
	{
		usage(progname);
		exit(0);
	}
	if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
	{
		printf("%s %s\n", progname, VERIFY_VERSION);
		exit(0);
	}
}

static void
parse_options(int argc, char **argv, Options *options)
{
	enum
	{
		SUBSCRIPTION = 1, PUBLISHER_STRING, MAX_RATE, CHUNK_SNAPSHOTS, CSV, JSON, VALUES, RESYNC
	};
	static struct option long_options[] = {
		{"dbname", required_argument, NULL, 'd'},
		{"host", required_argument, NULL, 'h'},
		{"port", required_argument, NULL, 'p'},
		{"username", required_argument, NULL, 'U'},
		{"subscription", required_argument, NULL, SUBSCRIPTION},
		{"publisher", required_argument, NULL, PUBLISHER_STRING},
		{"table", required_argument, NULL, 't'},
		{"exclude-table", required_argument, NULL, 'T'},
		{"jobs", required_argument, NULL, 'j'},
		{"max-rate", required_argument, NULL, MAX_RATE},
		{"chunk-snapshots", required_argument, NULL, CHUNK_SNAPSHOTS},
		{"csv", no_argument, NULL, CSV},
		{"json", no_argument, NULL, JSON},
		{"values", no_argument, NULL, VALUES},
		{"resync", no_argument, NULL, RESYNC},
		{"progress", no_argument, NULL, 'P'},
		{"verbose", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0}
	};
	const char *progname = get_progname(argv[0]);
	int			c;

	show_help_or_version(argc, argv, progname);
	while ((c = getopt_long(argc, argv, "d:h:p:U:t:T:j:Pv", long_options, NULL)) != -1)
	{
		switch (c)
		{
			case 'd':
				options->subscriber.dbname = optarg;
				break;
			case 'h':
				options->subscriber.host = optarg;
				break;
			case 'p':
				options->subscriber.port = optarg;
				break;
			case 'U':
				options->subscriber.user = optarg;
				break;
			case SUBSCRIPTION:
				simple_string_list_append(&options->subscriptions, optarg);
				break;
			case PUBLISHER_STRING:
				options->publisher = optarg;
				break;
			case 't':
				simple_string_list_append(&options->tables, optarg);
				break;
			case 'T':
				simple_string_list_append(&options->excluded, optarg);
				break;
			case 'j':
				options->check.jobs = parse_jobs(optarg);
				break;
			case MAX_RATE:
				if (!option_parse_int(optarg, "--max-rate", 1, INT_MAX, &options->check.max_rate))
					exit(STATUS_NOT_VERIFIED);
				break;
			case CHUNK_SNAPSHOTS:
				options->check.chunk_ms = parse_minutes(optarg);
				break;
			case CSV:
				options->output.format = FORMAT_CSV;
				break;
			case JSON:
				options->output.format = FORMAT_JSON;
				break;
			case VALUES:
				options->output.with_values = true;
				break;
			case RESYNC:
				options->must_resync = true;
				break;
			case 'P':
				options->check.shows_progress = true;
				break;
			case 'v':
				options->is_verbose = true;
				break;
			default:
				pg_log_error_hint("Try \"%s --help\" for more information.", progname);
				exit(STATUS_NOT_VERIFIED);
		}
	}
	if (optind < argc && options->subscriber.dbname == NULL)
		options->subscriber.dbname = argv[optind++];
	if (optind < argc)
	{
		pg_log_error("too many command-line arguments (first is \"%s\")", argv[optind]);
		pg_log_error_hint("Try \"%s --help\" for more information.", progname);
		exit(STATUS_NOT_VERIFIED);
	}
}

/* Return the value of a query about a subscription, whose name the query ends with. */
static char *
ask_about(PGconn *conn, const char *sql, const char *name)
{
	PQExpBufferData text;
	char	   *value;

	initPQExpBuffer(&text);
	appendPQExpBufferStr(&text, sql);
	append_literal(&text, name);
	value = query_value(conn, text.data);
	termPQExpBuffer(&text);
	return value;
}

static void
check_extension(PGconn *subscriber)
{
	if (query_value(subscriber,
					"SELECT to_regprocedure('parallel_apply.pause(name,pg_lsn,interval)')::text") != NULL)
		return;
	pg_log_error("database \"%s\" does not have extension \"parallel_apply\", or an old version of it",
				 PQdb(subscriber));
	pg_log_error_hint("Connect to the database of the subscription, and use CREATE EXTENSION parallel_apply there.");
	exit(STATUS_NOT_VERIFIED);
}

/* Return why the subscription cannot be verified at all, or NULL. */
static const char *
find_obstacle(PGconn *subscriber, const Subscription *subscription)
{
	if (!subscription->is_enabled)
		return "it is disabled";
	if (subscription->slot == NULL)
		return "it has no replication slot";
	if (ask_about(subscriber, "SELECT 1 FROM parallel_apply.subscription_config WHERE paused AND subname = ",
				  subscription->name) != NULL)
		return "it is paused";
	if (ask_about(subscriber, "SELECT 1 FROM parallel_apply.failed_transactions WHERE subname = ",
				  subscription->name) != NULL)
		return "a transaction fails: see the view parallel_apply.failed_transactions";
	return NULL;
}

/* End the program if this is not the subscription's publisher. */
static void
check_publisher(PGconn *publisher, const Subscription *subscription)
{
	if (PQserverVersion(publisher) < OLDEST_PUBLISHER)
	{
		pg_log_error("the publisher has a version before %d", OLDEST_PUBLISHER / 10000);
		exit(STATUS_NOT_VERIFIED);
	}
	if (ask_about(publisher,
				  "SELECT 1 FROM pg_replication_slots WHERE database = current_database() AND slot_name = ",
				  subscription->slot) == NULL)
	{
		pg_log_error("database \"%s\" of the publisher does not have replication slot \"%s\" of subscription \"%s\"",
					 PQdb(publisher), subscription->slot, subscription->name);
		pg_log_error_hint("Connect to the server and database that the subscription is connected to.");
		exit(STATUS_NOT_VERIFIED);
	}
}

/* Hash functions depend on the byte order and the encoding of a server. */
static HashKind
choose_hash(PGconn **sessions)
{
	char	   *values[SIDES];
	bool		is_same;

	for (Side side = PUBLISHER; side <= SUBSCRIBER; side++)
		values[side] = query_value(sessions[side],
								   "SELECT hashtextextended('pg_verify_subscription', 0) || current_setting('server_encoding')");
	is_same = strcmp(values[PUBLISHER], values[SUBSCRIBER]) == 0;
	free(values[PUBLISHER]);
	free(values[SUBSCRIBER]);
	return is_same ? HASH_FAST : HASH_PORTABLE;
}

static bool
is_named(const Table *table, SimpleStringList * names)
{
	PQExpBufferData full;
	bool		result;

	initPQExpBuffer(&full);
	appendPQExpBuffer(&full, "%s.%s", table->schema, table->name);
	result = simple_string_list_member(names, table->name) ||
		simple_string_list_member(names, full.data) ||
		simple_string_list_member(names, table->shown);
	termPQExpBuffer(&full);
	return result;
}

/* Keep the tables that are to be verified. */
static void
select_tables(Tables *tables, Options *options)
{
	int			n = 0;

	for (int i = 0; i < tables->count; i++)
		if ((options->tables.head == NULL || is_named(&tables->tables[i], &options->tables)) &&
			!is_named(&tables->tables[i], &options->excluded))
			tables->tables[n++] = tables->tables[i];
	tables->count = n;
}

static int
status_of(const Tables *tables)
{
	int			status = STATUS_EQUAL;

	for (int i = 0; i < tables->count; i++)
	{
		if (is_different(&tables->tables[i]))
			return STATUS_DIFFERENT;
		if (tables->tables[i].obstacle != NULL)
			status = STATUS_NOT_VERIFIED;
	}
	return status;
}

static int
verify(Options *options, PGconn *subscriber, Subscription *subscription)
{
	Target		targets[SIDES] = {
		{.conninfo = options->publisher ? options->publisher : subscription->conninfo},
		options->subscriber
	};
	const char *obstacle = find_obstacle(subscriber, subscription);
	Tables		tables;
	Common		common = {
		.targets = targets,
		.sessions = {NULL, subscriber},
		.subscription = subscription,
		.tables = &tables
	};

	if (obstacle == NULL && targets[PUBLISHER].conninfo == NULL)
		obstacle = "you may not read its connection string, so use --publisher";
	if (obstacle != NULL)
	{
		pg_log_error("subscription \"%s\" cannot be verified: %s", subscription->name, obstacle);
		return STATUS_NOT_VERIFIED;
	}
	common.sessions[PUBLISHER] = connect_to(&targets[PUBLISHER], SESSION_SQL);
	check_publisher(common.sessions[PUBLISHER], subscription);
	options->check.hash = choose_hash(common.sessions);
	options->output.subscription = subscription->name;
	tables = load_tables(common.sessions[PUBLISHER], subscriber, subscription);
	select_tables(&tables, options);
	if (tables.count == 0)
	{
		pg_log_error("subscription \"%s\" has no such table", subscription->name);
		disconnect(common.sessions[PUBLISHER]);
		return STATUS_NOT_VERIFIED;
	}
	check_tables(&common, &options->check, &options->output);
	disconnect(common.sessions[PUBLISHER]);
	if (options->is_verbose)
		fprintf(stderr, "subscription \"%s\": its snapshots have held back VACUUM on both servers for %s%.1f s\n",
				subscription->name, options->check.chunk_ms > 0 ? "at most " : "",
				common.longest_ms / 1000);
	if (options->must_resync && !resync_tables(&tables, subscriber, subscription))
		return STATUS_NOT_VERIFIED;
	return status_of(&tables);
}

int
main(int argc, char **argv)
{
	Options		options = {.check = {.jobs = 1}};
	PGconn	   *subscriber;
	Subscription *subscriptions;
	int			count;
	int			verified = 0;
	int			result = STATUS_EQUAL;
	PQExpBufferData head;

	pg_logging_init(argv[0]);
	parse_options(argc, argv, &options);
	cancel_on_signal();
	if (options.is_verbose)
		pg_logging_increase_verbosity();
	subscriber = connect_to(&options.subscriber, SESSION_SQL);
	check_extension(subscriber);
	subscriptions = load_subscriptions(subscriber, &count);
	for (SimpleStringListCell * cell = options.subscriptions.head; cell; cell = cell->next)
	{
		bool		exists = false;

		for (int i = 0; i < count; i++)
			exists |= strcmp(subscriptions[i].name, cell->val) == 0;
		if (exists)
			continue;
		pg_log_error("database \"%s\" does not have subscription \"%s\"", PQdb(subscriber), cell->val);
		exit(STATUS_NOT_VERIFIED);
	}

	initPQExpBuffer(&head);
	append_head(&head, &options.output);
	fputs(head.data, stdout);
	termPQExpBuffer(&head);
	for (int i = 0; i < count; i++)
	{
		int			status;

		if (options.subscriptions.head &&
			!simple_string_list_member(&options.subscriptions, subscriptions[i].name))
			continue;
		status = verify(&options, subscriber, &subscriptions[i]);
		verified++;
		if (result != STATUS_DIFFERENT && status != STATUS_EQUAL)
			result = status;
	}
	if (verified == 0)
	{
		pg_log_error("database \"%s\" has no subscription", PQdb(subscriber));
		result = STATUS_NOT_VERIFIED;
	}
	disconnect(subscriber);
	return result;
}
