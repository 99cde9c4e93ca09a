/*-------------------------------------------------------------------------
 * server.c
 *	  Sessions of both servers.
 *
 * The sessions have the settings with which a walsender and an apply worker convert
 * values to text.  client_connection_check_interval ends what a session does when
 * this program is gone.  A walsender that waits for a transaction does not look for that,
 * so Ctrl-C cancels what the sessions do: the handler of the signal has all it needs in an
 * array, since it must not call malloc().
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <signal.h>
#include <unistd.h>

#include "common/logging.h"

#include "server.h"

#define PROGRAM "pg_verify_subscription"

/* More than -j permits; sessions beyond it would just not be canceled. */
#define MAX_SESSIONS 1024

/* Some are for superusers only on some versions, or unknown to others. */
static const char *const settings[] = {
	"search_path = pg_catalog",
	"standard_conforming_strings = on",
	"DateStyle = ISO",
	"IntervalStyle = postgres",
	"TimeZone = UTC",
	"extra_float_digits = 3",
	"bytea_output = hex",
	"xmloption = content",
	"lc_monetary = 'C'",
	"quote_all_identifiers = off",
	"row_security = off",
	"jit = off",
	"synchronize_seqscans = off",
	"client_connection_check_interval = '1s'"
};

/*
 * Timeouts that roles and databases may have, each if the server knows it.  They apply to a
 * walsender, too, which waits for transactions, and is idle while its snapshot is needed.
 */
#define NO_TIMEOUTS \
	"SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings" \
	" WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout'," \
	" 'idle_session_timeout', 'transaction_timeout')"

/* Of the sessions that are open; written only outside of the handler. */
static PGconn *sessions[MAX_SESSIONS];
static PGcancel * volatile cancels[MAX_SESSIONS];

/* A handler of sigaction(), whose arguments are not those of the server's from 19 on. */
static void
cancel_sessions(int signal_number)
{
	static const char message[] = PROGRAM ": canceled; tables that were not named have not been compared\n";
	char		error[256];

	if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0)
		_exit(1);
	for (int i = 0; i < MAX_SESSIONS; i++)
		if (cancels[i] != NULL)
			(void) PQcancel(cancels[i], error, sizeof(error));
	_exit(1);
}

void
cancel_on_signal(void)
{
	struct sigaction action = {.sa_handler = cancel_sessions,.sa_flags = SA_RESETHAND};

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void
register_session(PGconn *conn)
{
	for (int i = 0; i < MAX_SESSIONS; i++)
	{
		if (sessions[i] != NULL)
			continue;
		sessions[i] = conn;
		cancels[i] = PQgetCancel(conn);
		return;
	}
}

void
disconnect(PGconn *conn)
{
	for (int i = 0; i < MAX_SESSIONS; i++)
	{
		PGcancel   *cancel = cancels[i];

		if (sessions[i] != conn)
			continue;
		cancels[i] = NULL;
		PQfreeCancel(cancel);
		sessions[i] = NULL;
	}
	PQfinish(conn);
}

char *
message_of(const PGresult *result, PGconn *conn)
{
	const char *primary = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
	char	   *message = pg_strdup(primary ? primary : PQerrorMessage(conn));
	size_t		length;

	for (length = strlen(message); length > 0 && message[length - 1] == '\n'; length--)
		message[length - 1] = '\0';
	return message;
}

void
fail_with(PGconn *conn, const char *what)
{
	pg_log_error("%s: %s", what, message_of(NULL, conn));
	exit(1);
}

/* Pass on what the server says, such as that it waits for something. */
static void
show_notice(void *arg, const PGresult *result)
{
	const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
	const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);

	if (severity == NULL || (strcmp(severity, "NOTICE") != 0 && strcmp(severity, "WARNING") != 0))
		return;
	pg_log_warning("%s", PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY));
	if (detail)
		pg_log_warning_detail("%s", detail);
}

PGconn *
connect_to(const Target *target, SessionKind kind)
{
	PQconninfoOption *options = NULL;
	const char *keywords[64];
	const char *values[64];
	int			n = 0;
	PGconn	   *conn;

	if (target->conninfo)
	{
		char	   *error;

		options = PQconninfoParse(target->conninfo, &error);
		if (options == NULL)
		{
			pg_log_error("invalid connection string of the publisher: %s", error ? error : "out of memory");
			exit(1);
		}
		for (PQconninfoOption *option = options; option->keyword && n < 50; option++)
		{
			if (option->val == NULL || option->val[0] == '\0')
				continue;
			keywords[n] = option->keyword;
			values[n++] = option->val;
		}
	}
#define ADD(keyword, value) (keywords[n] = (keyword), values[n++] = (value))
	if (target->dbname)
		ADD("dbname", target->dbname);
	if (target->host)
		ADD("host", target->host);
	if (target->port)
		ADD("port", target->port);
	if (target->user)
		ADD("user", target->user);
	if (kind == SESSION_REPLICATION)
		ADD("replication", "database");
	ADD("client_encoding", "UTF8");
	ADD("application_name", PROGRAM);
	ADD(NULL, NULL);
#undef ADD

	conn = PQconnectdbParams(keywords, values, 1);
	if (options)
		PQconninfoFree(options);
	if (PQstatus(conn) != CONNECTION_OK)
		fail_with(conn, target->conninfo ? "could not connect to the publisher" :
				  "could not connect to the subscriber");
	PQsetNoticeReceiver(conn, show_notice, NULL);
	register_session(conn);
	execute(conn, NO_TIMEOUTS);
	if (kind == SESSION_SQL)
	{
		PQExpBufferData sql;

		initPQExpBuffer(&sql);
		for (int i = 0; i < lengthof(settings); i++)
			appendPQExpBuffer(&sql, "SET %s; ", settings[i]);
		execute(conn, sql.data);
		termPQExpBuffer(&sql);
	}
	return conn;
}

bool
failed_by_lock(const PGresult *result)
{
	const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);

	/* lock_not_available, deadlock_detected */
	return code != NULL && (strcmp(code, "55P03") == 0 || strcmp(code, "40P01") == 0);
}

PGresult *
query(PGconn *conn, const char *sql)
{
	PGresult   *result = PQexec(conn, sql);

	while (failed_by_lock(result) && PQtransactionStatus(conn) == PQTRANS_IDLE)
	{
		PQclear(result);
		result = PQexec(conn, sql);
	}
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		pg_log_error("query failed: %s", message_of(result, conn));
		pg_log_error_detail("Query was: %s", sql);
		exit(1);
	}
	return result;
}

void
execute(PGconn *conn, const char *sql)
{
	PGresult   *result = PQexec(conn, sql);

	if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
	{
		pg_log_error("command failed: %s", message_of(result, conn));
		pg_log_error_detail("Command was: %s", sql);
		exit(1);
	}
	PQclear(result);
}

static char *
only_value(PGresult *result)
{
	char	   *value = NULL;

	if (PQntuples(result) > 0 && !PQgetisnull(result, 0, 0))
		value = pg_strdup(PQgetvalue(result, 0, 0));
	PQclear(result);
	return value;
}

char *
query_value(PGconn *conn, const char *sql)
{
	return only_value(query(conn, sql));
}

char *
try_query_value(PGconn *conn, const char *sql, char **error)
{
	PGresult   *result = PQexec(conn, sql);

	*error = NULL;
	if (PQresultStatus(result) == PGRES_TUPLES_OK)
		return only_value(result);
	*error = message_of(result, conn);
	PQclear(result);
	return NULL;
}
