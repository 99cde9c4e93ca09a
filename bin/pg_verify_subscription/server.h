/*-------------------------------------------------------------------------
 * server.h
 *	  Sessions of both servers.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_SERVER_H
#define VERIFY_SERVER_H

#include "postgres_fe.h"

#include "libpq-fe.h"
#include "pqexpbuffer.h"

/* What a connection string is changed by; NULL: nothing. */
typedef struct Target
{
	const char *conninfo;
	const char *dbname;			/* may be a connection string itself */
	const char *host;
	const char *port;
	const char *user;
} Target;

typedef enum SessionKind
{
	SESSION_SQL,				/* as apply workers are: text of values does
								 * not depend on settings */
	SESSION_REPLICATION			/* can also execute SQL */
} SessionKind;

/*
 * Connect; the session has no timeouts.  All functions end the program with status 1 if the
 * server reports an error, unless they say otherwise.
 */
extern PGconn *connect_to(const Target *target, SessionKind kind);

extern void disconnect(PGconn *conn);

/*
 * From the first call on, SIGINT and SIGTERM cancel what all sessions do, and end the
 * program with status 1.  A second one ends it without waiting for any server.
 */
extern void cancel_on_signal(void);

/*
 * Execute a query; the caller clears the result.  Outside of a transaction, a query that was
 * the victim of a deadlock is repeated.
 */
extern PGresult *query(PGconn *conn, const char *sql);

/* Did the query fail because of a lock: a deadlock, or lock_timeout? */
extern bool failed_by_lock(const PGresult *result);

/* Execute a command. */
extern void execute(PGconn *conn, const char *sql);

/* Execute a query, and return its only value, allocated; NULL: null, or no row. */
extern char *query_value(PGconn *conn, const char *sql);

/* The same, but return the message of an error in *error, allocated. */
extern char *try_query_value(PGconn *conn, const char *sql, char **error);

/* End the program because of what this session reports. */
extern void fail_with(PGconn *conn, const char *what) __attribute__((noreturn));

/* Return a message without its end of line and level, allocated. */
extern char *message_of(const PGresult *result, PGconn *conn);

#endif							/* VERIFY_SERVER_H */
