/*-------------------------------------------------------------------------
 * leader_count.c
 *	  Count changes and conflicts of each table that the apply worker itself
 *	  applies.
 *
 * Runs in the receiver.
 *
 * Changes that the native loop (PostgreSQL's own apply loop) applies for the
 * pool, in a fallback or in a small transaction while the writers are idle,
 * count in parallel_apply.tables like those of writers.  A message is counted
 * when the native loop gets it.  The counts are added to the statistics when
 * the transaction is committed.  An error ends the process, and with it the
 * counts.
 *
 * Conflicts are counted, too.  From PostgreSQL 18 on, the native loop logs
 * each of them, and the receiver sees what is logged.  Before that, it skips
 * changes of missing rows silently.  So when it asks for the next message, the
 * server's own counter of the table's updated and deleted rows is compared
 * with the previous value: if it has not changed, the row was missing.  That
 * is not done where this conclusion could be wrong: in partitioned tables, in
 * tables with a trigger that may suppress a change, and after a TRUNCATE.  It
 * needs track_counts.
 *
 * Changes are not counted without a pool.  PostgreSQL's own apply is left
 * alone then, and counting would require a lookup of the local table, which
 * only a pool needs.  Conflicts that PostgreSQL 18 logs are counted.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "pgstat.h"
#include "replication/logicalproto.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "failed.h"
#include "leader_count.h"
#include "message.h"
#include "remote_relation.h"
#include "statistics.h"
#include "table_statistics.h"

/* Counts of one relation of the publisher. */
typedef struct Count
{
	LogicalRepRelId remote_relid;	/* hash key */
	bool		is_counted;		/* in the list, for this transaction */
	uint64		counts[PAPPLY_TABLE_COUNTERS];
	uint64		changed_rows;	/* the server's count, in this transaction */
	PapplyConflict last_conflict;	/* if its time is set */
	PapplyTableHint hint;
	struct Count *next;
} Count;

/* What the native loop has done. */
typedef struct Tally
{
	HTAB	   *by_relid;		/* of Count */
	Count	   *counted;		/* those of this transaction */
	bool		has_truncated;	/* in this transaction */
} Tally;

static Tally tally;

bool		papply_leader_count_must_look = false;

static Count *
get_count(LogicalRepRelId remote_relid)
{
	Count	   *count;
	bool		found;

	if (tally.by_relid == NULL)
	{
		HASHCTL		control = {0};

		control.keysize = sizeof(LogicalRepRelId);
		control.entrysize = sizeof(Count);
		control.hcxt = TopMemoryContext;
		tally.by_relid = hash_create("rows changed by the apply worker", 64, &control,
									 HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	count = hash_search(tally.by_relid, &remote_relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(count, 0, sizeof(*count));
		count->remote_relid = remote_relid;
	}
	return count;
}

static PapplyTableCounter
counter_of(char kind)
{
	switch (kind)
	{
		case LOGICAL_REP_MSG_INSERT:
			return PAPPLY_TABLE_INSERTS;
		case LOGICAL_REP_MSG_UPDATE:
			return PAPPLY_TABLE_UPDATES;
		case LOGICAL_REP_MSG_DELETE:
			return PAPPLY_TABLE_DELETES;
		default:
			return PAPPLY_TABLE_COUNTERS;
	}
}

static Count *
add_count(LogicalRepRelId remote_relid, PapplyTableCounter counter)
{
	Count	   *count = get_count(remote_relid);

	count->counts[counter]++;
	if (count->is_counted)
		return count;
	count->is_counted = true;
	count->next = tally.counted;
	tally.counted = count;
	return count;
}

void
papply_leader_count_message(const char *message, int length)
{
	PapplyTableCounter counter = counter_of(message[0]);

	tally.has_truncated |= message[0] == LOGICAL_REP_MSG_TRUNCATE;
	if (counter == PAPPLY_TABLE_COUNTERS || length < 5)
		return;
	add_count(papply_message_get_uint32(message + 1), counter);
	papply_leader_count_must_look = !PAPPLY_REPORTS_CONFLICTS &&
		counter != PAPPLY_TABLE_INSERTS;
}

/*** conflicts ***/

/* Describe a conflict of the message that the native loop is processing. */
static void
describe_conflict(PapplyConflict *conflict, PapplyConflictType type,
				  const PapplyRemoteRelation *rel)
{
	conflict->type = type;
	conflict->at = GetCurrentTimestamp();
	papply_failed_describe_key(rel->remote, papply_failed_message, papply_failed_message_length,
							   conflict->key, sizeof(conflict->key));
}

static PapplyRemoteRelation *
relation_of_message(void)
{
	if (papply_failed_message == NULL || papply_failed_message_length < 5 ||
		counter_of(papply_failed_message[0]) == PAPPLY_TABLE_COUNTERS)
		return NULL;
	return papply_remote_relation_get(papply_message_get_uint32(papply_failed_message + 1), false);
}

/* Return how many rows of a table this transaction has updated and deleted. */
static uint64
count_changed_rows(Relation rel)
{
	uint64		sum = 0;

	if (rel->pgstat_info == NULL)
		return 0;
	for (PgStat_TableXactStatus *level = rel->pgstat_info->trans; level != NULL; level = level->upper)
		sum += level->tuples_updated + level->tuples_deleted;
	return sum;
}

static bool
can_tell_missing_rows(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	return rel->pgstat_enabled && rel->rd_rel->relkind == RELKIND_RELATION &&
		(triggers == NULL ||
		 !(triggers->trig_update_before_row || triggers->trig_delete_before_row));
}

/* Does the native loop skip changes of this relation, or of this transaction? */
static bool
is_skipped(const PapplyRemoteRelation *rel)
{
	return !OidIsValid(rel->local_relid) || !rel->is_ready ||
		MySubscription->skiplsn == papply_statistics_progress->leader.final_lsn;
}

static void
count_missing(Count *count, const PapplyRemoteRelation *rel)
{
	PapplyConflictType type = papply_conflict_type_of(papply_failed_message[0], false);

	count->counts[PAPPLY_TABLE_CONFLICTS + type]++;
	describe_conflict(&count->last_conflict, type, rel);
	if (papply_log_conflicts)
		papply_conflict_type_log(rel->local_relid, type, NULL, count->last_conflict.key);
}

void
papply_leader_count_look(void)
{
	PapplyRemoteRelation *rel = relation_of_message();
	Relation	local;
	Count	   *count;
	uint64		changed_rows;

	papply_leader_count_must_look = false;
	if (rel == NULL || tally.has_truncated || is_skipped(rel) || !IsTransactionState())
		return;
	local = RelationIdGetRelation(rel->local_relid);
	if (local == NULL)
		return;
	count = get_count(rel->remote_relid);
	changed_rows = count_changed_rows(local);
	if (changed_rows == count->changed_rows && can_tell_missing_rows(local))
		count_missing(count, rel);
	count->changed_rows = changed_rows;
	RelationClose(local);
}

/* Return the type that PostgreSQL 18 has logged, or PAPPLY_CONFLICT_TYPES. */
static PapplyConflictType
logged_type(const char *message)
{
	const char *name = strrchr(message, '=');

	for (int type = 0; name != NULL && type < PAPPLY_CONFLICT_TYPES; type++)
		if (strcmp(name + 1, papply_conflict_type_name(type)) == 0)
			return type;
	return PAPPLY_CONFLICT_TYPES;
}

/*
 * Return the type of a violation, or PAPPLY_CONFLICT_TYPES if it is none of
 * the table that is changed: a trigger may have changed another one.
 */
static PapplyConflictType
violation_type(const ErrorData *error, const PapplyRemoteRelation *rel)
{
	if (PAPPLY_REPORTS_CONFLICTS)
		return logged_type(error->message);
	if (error->table_name == NULL ||
		(rel->partitions == NIL && strcmp(error->table_name, rel->remote->relname) != 0))
		return PAPPLY_CONFLICT_TYPES;
	return papply_failed_message[0] == LOGICAL_REP_MSG_INSERT ? PAPPLY_INSERT_EXISTS :
		PAPPLY_UPDATE_EXISTS;
}

static void
add_to_statistics(Oid relid, Count *count)
{
	papply_table_statistics_add(MySubscription->oid, relid, count->counts,
								&count->last_conflict, &count->hint);
}

void
papply_leader_count_logged(const ErrorData *error)
{
	PapplyRemoteRelation *rel = relation_of_message();
	PapplyConflictType type;

	if (rel == NULL)
		return;
	if (error->elevel == LOG)
	{
		if (!PAPPLY_REPORTS_CONFLICTS)
			return;				/* it is our own message */
		type = logged_type(error->message);
		if (type != PAPPLY_CONFLICT_TYPES)
			describe_conflict(&add_count(rel->remote_relid, PAPPLY_TABLE_CONFLICTS + type)->last_conflict,
							  type, rel);
		return;
	}
	type = violation_type(error, rel);
	if (type != PAPPLY_CONFLICT_TYPES && OidIsValid(rel->local_relid))
	{
		Count		count = {0};

		count.counts[PAPPLY_TABLE_CONFLICTS + type] = 1;
		describe_conflict(&count.last_conflict, type, rel);
		add_to_statistics(rel->local_relid, &count);
	}
}

/*** end of the transaction ***/

void
papply_leader_count_commit(bool has_pool)
{
	tally.has_truncated = false;
	for (; tally.counted != NULL; tally.counted = tally.counted->next)
	{
		PapplyRemoteRelation *rel = papply_remote_relation_get(tally.counted->remote_relid, !has_pool);

		if (rel != NULL && OidIsValid(rel->local_relid))
			add_to_statistics(rel->local_relid, tally.counted);
		tally.counted->changed_rows = 0;
		tally.counted->last_conflict.at = 0;
		memset(tally.counted->counts, 0, sizeof(tally.counted->counts));
		tally.counted->is_counted = false;
	}
}
