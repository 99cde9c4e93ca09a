/*-------------------------------------------------------------------------
 * server.c
 *	  Sessions of both servers.
 *
 * The sessions have the settings with which a walsender and an apply worker convert
 * values to text.  client_connection_check_interval ends what a session does when
 * this program is gone.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include "common/logging.h"

#include "server.h"

#define PROGRAM "pg_verify_subscription"

/* Some are for superusers only on some versions, or unknown to others. */
static const char *const settings[] = {
	"search_path = pg_catalog",
	"DateStyle = ISO",
	"IntervalStyle = postgres",
	"TimeZone = UTC",
	"extra_float_digits = 3",
	"bytea_output = hex",
	"xmloption = content",
	"row_security = off",
	"statement_timeout = 0",
	"lock_timeout = 0",
	"idle_in_transaction_session_timeout = 0",
	"jit = off",
	"synchronize_seqscans = off",
	"client_connection_check_interval = '1s'"
};

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
	if (kind == SESSION_SQL)
	{
		for (int i = 0; i < lengthof(settings); i++)
		{
			PQExpBufferData sql;

			initPQExpBuffer(&sql);
			appendPQExpBuffer(&sql, "SET %s", settings[i]);
			execute(conn, sql.data);
			termPQExpBuffer(&sql);
		}
	}
	return conn;
}

PGresult *
query(PGconn *conn, const char *sql)
{
	PGresult   *result = PQexec(conn, sql);

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
