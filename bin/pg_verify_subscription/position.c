/*-------------------------------------------------------------------------
 * position.c
 *	  Snapshots of both servers that show the same transactions.
 *
 * The snapshot of the publisher is the one that the creation of a temporary
 * replication slot exports.  It shows each transaction whose commit record is before
 * the slot's first position.  parallel_apply.pause() brings the subscriber to exactly
 * this state, and there a snapshot is exported, too.
 *
 * The position is known when the slot exists, and the subscriber must not be beyond
 * it then.  So apply is held first, at the position where it is, and then the slot is
 * created.  The slot has to wait for the transactions that are running, twice.
 * Meanwhile apply must not be held: while the publisher shows that its walsender waits
 * for a transaction, the slot's position will be greater than the present end of WAL.
 * So apply is permitted up to the end of WAL that was read before the walsender was
 * seen to wait.  It follows the publisher at a distance of POLL_MS.  If the walsender
 * does not wait, but takes longer than HOLD_MS nevertheless (it has to read much WAL),
 * apply is released, and the same begins again when the slot exists.
 *
 * The pause belongs to a session of its own, which does nothing else.  If this program
 * is killed, the server ends the session, and with it the pause; if this program or its
 * machine stops, IDLE_LIMIT ends it.  The slot is temporary.
 *-------------------------------------------------------------------------
 */
#include "postgres_fe.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "common/logging.h"

#include "position.h"
#include "ranges.h"
#include "table.h"

#define POLL_MS 20
#define HOLD_MS 1000
#define MAX_ATTEMPTS 6

/* A session that pauses apply and does nothing ends after this time. */
#define IDLE_LIMIT "10s"

typedef struct Attempt
{
	PGconn	   *hold;			/* session with the pause */
	const char *subscription;
	double		held_since;
	double		limit_ms;
	char		slot_name[64];
	char	   *reported_pid;	/* process ID of the transaction last reported */
} Attempt;

double
now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/*
 * Pause at a position (NULL: where the subscription is).  timeout: NULL or an
 * interval.  Return true if the position is reached; *error: the pause has ended.
 */
static bool
pause_at(Attempt *attempt, const char *lsn, const char *timeout, char **error)
{
	PQExpBufferData sql;
	char	   *value;
	bool		is_reached;

	initPQExpBuffer(&sql);
	appendPQExpBufferStr(&sql, "SELECT parallel_apply.pause(");
	append_literal(&sql, attempt->subscription);
	appendPQExpBufferStr(&sql, ", ");
	if (lsn)
		append_literal(&sql, lsn);
	else
		appendPQExpBufferStr(&sql, "NULL");
	if (timeout)
		appendPQExpBuffer(&sql, ", '%s'", timeout);
	appendPQExpBufferChar(&sql, ')');
	value = try_query_value(attempt->hold, sql.data, error);
	termPQExpBuffer(&sql);
	is_reached = value != NULL && value[0] == 't';
	free(value);
	return is_reached;
}

static void
let_go(Attempt *attempt)
{
	if (attempt->hold != NULL)
		disconnect(attempt->hold);
	attempt->hold = NULL;
}

/* Name a transaction for which the slot waits, once. */
static void
report_wait(Attempt *attempt, PGresult *result)
{
	const char *pid = PQgetvalue(result, 0, 1);

	if (attempt->reported_pid != NULL && strcmp(attempt->reported_pid, pid) == 0)
		return;
	free(attempt->reported_pid);
	attempt->reported_pid = pg_strdup(pid);
	pg_log_info("waiting for transaction %s of the publisher%s%s, which was running at the beginning; apply continues",
				PQgetvalue(result, 0, 0), pid[0] ? ", of the process with ID " : "", pid);
}

/*
 * While the walsender waits for a transaction, permit what is committed on the
 * publisher.
 */
static void
follow_publisher(Attempt *attempt, PGconn *publisher, PGconn *slot, double since)
{
	char		sql[1024];
	char	   *lsn = query_value(publisher,
								  "SELECT pg_current_wal_insert_lsn() WHERE NOT pg_is_in_recovery()");
	PGresult   *result;
	char	   *error = NULL;

	snprintf(sql, sizeof(sql),
			 "SELECT w.transactionid::text, (SELECT h.pid::text FROM pg_locks h WHERE h.locktype = 'transactionid'"
			 " AND h.transactionid = w.transactionid AND h.granted LIMIT 1)"
			 " FROM pg_locks w WHERE w.pid = %d AND w.locktype = 'transactionid' AND NOT w.granted",
			 PQbackendPID(slot));
	result = query(publisher, sql);
	if (PQntuples(result) > 0)
	{
		if (lsn != NULL && attempt->hold != NULL)
		{
			attempt->held_since = now_ms();
			(void) pause_at(attempt, lsn, "0", &error);
		}
		if (now_ms() - since > 1000)
			report_wait(attempt, result);
	}
	PQclear(result);
	free(error);				/* the next use of the pause notices that */
	free(lsn);
}

static bool
is_readable(PGconn *conn, int timeout_ms)
{
	struct pollfd socket = {.fd = PQsocket(conn),.events = POLLIN};

	return poll(&socket, 1, timeout_ms) > 0;
}

/* Create the slot; apply is not held any more if that takes too long. */
static PGresult *
create_slot(Attempt *attempt, PGconn *publisher, PGconn *slot)
{
	double		since = now_ms();
	char		command[200];
	PGresult   *result;

	snprintf(attempt->slot_name, sizeof(attempt->slot_name), "pg_verify_%d_%d_%lx",
			 PQbackendPID(slot), (int) getpid(), (long) time(NULL));
	snprintf(command, sizeof(command),
			 "CREATE_REPLICATION_SLOT \"%s\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')",
			 attempt->slot_name);
	if (!PQsendQuery(slot, command))
		fail_with(slot, "could not create a replication slot on the publisher");
	for (;;)
	{
		if (is_readable(slot, POLL_MS) && !PQconsumeInput(slot))
			fail_with(slot, "could not create a replication slot on the publisher");
		if (!PQisBusy(slot))
			break;
		follow_publisher(attempt, publisher, slot, since);
		if (attempt->hold != NULL && now_ms() - attempt->held_since > attempt->limit_ms)
			let_go(attempt);
	}
	result = PQgetResult(slot);
	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		fail_with(slot, "could not create a replication slot on the publisher");
	PQclear(PQgetResult(slot));
	return result;
}

/* Would apply of the subscription continue, were it not held? */
static bool
is_enabled(const Attempt *attempt)
{
	PQExpBufferData sql;
	char	   *value;
	bool		result;

	initPQExpBuffer(&sql);
	appendPQExpBufferStr(&sql,
						 "SELECT 1 FROM pg_subscription WHERE subenabled AND subdbid ="
						 " (SELECT oid FROM pg_database WHERE datname = current_database()) AND subname = ");
	append_literal(&sql, attempt->subscription);
	value = query_value(attempt->hold, sql.data);
	result = value != NULL;
	termPQExpBuffer(&sql);
	free(value);
	return result;
}

/*
 * Hold apply where it is.  Return false, and say why, if it is too far behind for that, or,
 * unless this is the first position, if pause() reports an error: another session may have
 * paused the subscription.
 */
static bool
begin_hold(Attempt *attempt, const Target *target, bool is_first)
{
	char		timeout[32];
	char	   *error;
	bool		is_reached;

	attempt->hold = connect_to(target, SESSION_SQL);
	execute(attempt->hold, "SET idle_session_timeout = '" IDLE_LIMIT "'");
	attempt->held_since = now_ms();
	snprintf(timeout, sizeof(timeout), "%d ms", (int) attempt->limit_ms);
	is_reached = pause_at(attempt, NULL, timeout, &error);
	if (error && (is_first || !is_enabled(attempt)))
	{
		pg_log_error("could not hold apply of subscription \"%s\": %s", attempt->subscription, error);
		exit(1);
	}
	if (error)
		pg_log_info("could not hold apply of subscription \"%s\": %s; trying again",
					attempt->subscription, error);
	else if (!is_reached)
		pg_log_info("apply of subscription \"%s\" does not come to rest within %d ms; trying again",
					attempt->subscription, (int) attempt->limit_ms);
	free(error);
	if (!is_reached)
		let_go(attempt);
	return is_reached;
}

void
import_snapshot(PGconn *conn, const char *snapshot)
{
	PQExpBufferData sql;

	execute(conn, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
	initPQExpBuffer(&sql);
	appendPQExpBufferStr(&sql, "SET TRANSACTION SNAPSHOT ");
	append_literal(&sql, snapshot);
	execute(conn, sql.data);
	termPQExpBuffer(&sql);
}

/*
 * Bring the subscriber to the position, and take its snapshot there.  Return false if
 * apply was beyond it, the pause has ended before, or apply does not get there in time: a
 * transaction before the position may wait for a lock, or fail.
 */
static bool
meet(Attempt *attempt, Position *position, PGconn *subscriber)
{
	char	   *error = NULL;
	char		timeout[32];
	bool		is_there;

	if (attempt->hold == NULL)
		return false;
	snprintf(timeout, sizeof(timeout), "%d ms", (int) attempt->limit_ms);
	is_there = pause_at(attempt, position->lsn, timeout, &error);
	if (is_there)
	{
		execute(subscriber, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
		free(position->snapshots[SUBSCRIBER]);
		position->snapshots[SUBSCRIBER] = query_value(subscriber, "SELECT pg_export_snapshot()");
		is_there = pause_at(attempt, position->lsn, "0", &error);
		if (!is_there)
			execute(subscriber, "ROLLBACK");
	}
	free(error);
	let_go(attempt);
	position->held_ms = now_ms() - attempt->held_since;
	return is_there;
}

/* Let apply continue for as long as it was held, and hold it for longer in the next attempt. */
static void
wait_and_lengthen(Attempt *attempt, int n)
{
	(void) poll(NULL, 0, (int) attempt->limit_ms);
	if (n < MAX_ATTEMPTS)
		attempt->limit_ms *= 2;
}

void
take_position(Position *position, const Target *targets, PGconn **sessions,
			  const char *subscription)
{
	Attempt		attempt = {.subscription = subscription,.limit_ms = HOLD_MS};
	bool		is_first = position->lsn == NULL;

	for (int n = 1; n <= MAX_ATTEMPTS || !is_first; n++)
	{
		PGresult   *result;

		position->slot = connect_to(&targets[PUBLISHER], SESSION_REPLICATION);
		if (!begin_hold(&attempt, &targets[SUBSCRIBER], is_first))
		{
			release_slot(position);
			wait_and_lengthen(&attempt, n);
			continue;
		}
		result = create_slot(&attempt, sessions[PUBLISHER], position->slot);
		free(position->lsn);
		free(position->snapshots[PUBLISHER]);
		position->lsn = pg_strdup(PQgetvalue(result, 0, 1));
		position->snapshots[PUBLISHER] = pg_strdup(PQgetvalue(result, 0, 2));
		PQclear(result);
		if (meet(&attempt, position, sessions[SUBSCRIBER]))
		{
			import_snapshot(sessions[PUBLISHER], position->snapshots[PUBLISHER]);
			free(attempt.reported_pid);
			return;
		}
		let_go(&attempt);
		release_slot(position);
		pg_log_info("the slot or apply took too long, or the pause was ended by another session; trying again");
		wait_and_lengthen(&attempt, n);
	}
	pg_log_error("could not find a common position of both servers");
	pg_log_error_hint("Try again when fewer long transactions are running on the publisher.");
	exit(1);
}

void
release_slot(Position *position)
{
	if (position->slot != NULL)
		disconnect(position->slot);
	position->slot = NULL;
}
