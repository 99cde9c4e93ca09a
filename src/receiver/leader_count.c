/*-------------------------------------------------------------------------
 * leader_count.c
 *	  Count what the apply worker itself applies.
 *
 * Runs in the receiver.
 *
 * Changes that the core apply loop applies count in the statistics of the
 * subscription.  If it applies them for the pool, in a fallback or in a small
 * transaction while the writers are idle, they count in
 * parallel_apply.tables, too, like those of writers.  A message is counted when
 * the core apply loop gets it.  The counts are added to the statistics when the
 * transaction is committed.  An error ends the process, and with it the counts.
 * Changes that the core apply loop skips, and those of a table that is being
 * synchronized, which it leaves out, do not count.  (They do if the table is
 * not looked up, because there is no pool, or if the server spools the
 * transaction, whose end is not known when the changes arrive.)
 *
 * Conflicts are counted, too.  From PostgreSQL 18 on, the core apply loop logs
 * each of them, and the receiver sees what is logged.  Before that, it skips
 * changes of missing rows silently.  So when it asks for the next message, the
 * server's own counter of the table's updated and deleted rows is compared
 * with the previous value: if it has not changed, the row was missing.  That
 * is not done where this conclusion could be wrong: in partitioned tables, in
 * tables with a trigger that may suppress a change, and after a TRUNCATE.  It
 * needs track_counts.
 *
 * Changes of a table are not counted without a pool.  PostgreSQL's own apply is
 * left alone then, and counting would require a lookup of the local table, which
 * only a pool needs.  Conflicts that PostgreSQL 18 logs are counted.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "pgstat.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/timestamp.h"

#include "leader_count.h"
#include "message.h"
#include "pool.h"
#include "statistics.h"
#include "tap.h"

/*
 * INSERT, UPDATE, DELETE and TRUNCATE, in the order of PapplyCounter and, but
 * for the last one, of PapplyTableCounter
 */
#define COUNTED_KINDS 4

StaticAssertDecl(PAPPLY_COUNT_TRUNCATES == PAPPLY_COUNT_INSERTS + COUNTED_KINDS - 1 &&
				 PAPPLY_TABLE_DELETES == PAPPLY_TABLE_INSERTS + COUNTED_KINDS - 2,
				 "counters of changes are consecutive");

/* What the core apply loop has done in this transaction. */
typedef struct Tally
{
	uint64		counts[COUNTED_KINDS];	/* from PAPPLY_COUNT_INSERTS on */
	uint64		changes;		/* all of them, and those that are skipped */
	bool		is_skipped;		/* decided at the first change */
	PapplyRemoteRelation *counted;	/* a list of those with counts */
} Tally;

static Tally tally;

bool		papply_leader_count_must_look = false;

static void
add_count(PapplyRemoteRelation *rel, PapplyTableCounter counter)
{
	rel->counts[counter]++;
	if (rel->is_counted)
		return;
	rel->is_counted = true;
	rel->next_counted = tally.counted;
	tally.counted = rel;
}

/*
 * Does the core apply loop skip the transaction that begins?  It decides that
 * when it gets the BEGIN, and does not look at the subscription before the
 * first change.
 */
static bool
must_skip(void)
{
	return papply_tap.begin.final_lsn == MySubscription->skiplsn;
}

/*
 * Does the core apply loop leave out the changes of this relation?  Its state
 * does not change while the core apply loop applies a transaction, because a
 * worker that synchronizes the table is done when the core apply loop has
 * waited for it.
 */
static bool
is_left_out(const PapplyRemoteRelation *rel)
{
	return !OidIsValid(rel->local_relid) ||
		(!rel->is_ready &&
		 (rel->synced_lsn == InvalidXLogRecPtr ||
		  rel->synced_lsn > papply_tap.begin.final_lsn));
}

/* rel may be NULL. */
static pg_noinline void
count_row(PapplyRemoteRelation *rel, PapplyTableCounter counter)
{
	if (rel == NULL)
		return;
	add_count(rel, counter);
	papply_leader_count_must_look = !PAPPLY_REPORTS_CONFLICTS && counter != PAPPLY_TABLE_INSERTS;
}

static void
count_change(const PapplyTap *tap)
{
	char		kind = tap->message.kind;
	int			n = kind == LOGICAL_REP_MSG_INSERT ? 0 : kind == LOGICAL_REP_MSG_UPDATE ? 1 :
	kind == LOGICAL_REP_MSG_DELETE ? 2 : 3;

	if (tally.changes++ == 0)
		tally.is_skipped = must_skip();
	papply_statistics_progress->leader.changes = tally.changes;
	if (tally.is_skipped)
		return;
	tally.counts[n]++;
	if (papply_pool != NULL)
		count_row(papply_tap_relation(), PAPPLY_TABLE_INSERTS + n);
}

/*** conflicts ***/

/* Describe a conflict of the message that the core apply loop is processing. */
static void
describe_conflict(PapplyRemoteRelation *rel, PapplyConflictType type)
{
	rel->last_conflict.type = type;
	rel->last_conflict.at = GetCurrentTimestamp();
	papply_message_show_key(&papply_tap.message, rel->remote, rel->last_conflict.key,
							sizeof(rel->last_conflict.key));
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
can_detect_missing_rows(Relation rel)
{
	TriggerDesc *triggers = rel->trigdesc;

	return rel->pgstat_enabled && rel->rd_rel->relkind == RELKIND_RELATION &&
		(triggers == NULL ||
		 !(triggers->trig_update_before_row || triggers->trig_delete_before_row));
}

static void
count_missing(PapplyRemoteRelation *rel)
{
	PapplyConflictType type = papply_conflict_type_of(papply_tap.message.kind, false);

	add_count(rel, PAPPLY_TABLE_CONFLICTS + type);
	describe_conflict(rel, type);
	if (papply_log_conflicts)
		papply_conflict_type_log(rel->local_relid, type, NULL, rel->last_conflict.key);
}

void
papply_leader_count_look(void)
{
	PapplyRemoteRelation *rel = papply_tap_relation();
	Relation	local;
	uint64		changed_rows;

	papply_leader_count_must_look = false;
	if (rel == NULL || tally.counts[COUNTED_KINDS - 1] > 0 || is_left_out(rel) || !IsTransactionState())
		return;
	local = RelationIdGetRelation(rel->local_relid);
	if (local == NULL)
		return;
	changed_rows = count_changed_rows(local);
	if (changed_rows == rel->changed_rows && can_detect_missing_rows(local))
		count_missing(rel);
	rel->changed_rows = changed_rows;
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
	return papply_tap.message.kind == LOGICAL_REP_MSG_INSERT ? PAPPLY_INSERT_EXISTS :
		PAPPLY_UPDATE_EXISTS;
}

static void
add_to_statistics(PapplyRemoteRelation *rel)
{
	if (OidIsValid(rel->local_relid))
		papply_table_statistics_add(MySubscription->oid, rel->local_relid, rel->counts,
									&rel->last_conflict, &rel->hint);
}

/* Count a conflict that was logged, or a violation of a unique constraint. */
static void
count_logged(const PapplyTap *tap)
{
	const ErrorData *error = tap->error;
	PapplyRemoteRelation *rel;
	PapplyConflictType type;

	if (error->sqlerrcode != ERRCODE_UNIQUE_VIOLATION &&
		error->sqlerrcode != ERRCODE_T_R_SERIALIZATION_FAILURE)
		return;
	rel = papply_tap_relation();
	if (rel == NULL)
		return;
	if (error->elevel == LOG)
	{
		if (!PAPPLY_REPORTS_CONFLICTS)
			return;				/* it is our own message */
		type = logged_type(error->message);
		if (type == PAPPLY_CONFLICT_TYPES)
			return;
		add_count(rel, PAPPLY_TABLE_CONFLICTS + type);
		describe_conflict(rel, type);
		return;
	}
	type = violation_type(error, rel);
	if (type == PAPPLY_CONFLICT_TYPES || error->elevel < ERROR)
		return;
	memset(rel->counts, 0, sizeof(rel->counts));	/* they are rolled back */
	rel->counts[PAPPLY_TABLE_CONFLICTS + type] = 1;
	describe_conflict(rel, type);
	add_to_statistics(rel);
}

/*** end of the transaction ***/

static void
forget_changes(PapplyRemoteRelation *rel)
{
	for (int i = PAPPLY_TABLE_INSERTS; i <= PAPPLY_TABLE_DELETES; i++)
		tally.counts[i - PAPPLY_TABLE_INSERTS] -= rel->counts[i];
	memset(rel->counts, 0, sizeof(rel->counts));
}

/*
 * Add the counts of a transaction to the statistics.  No transaction is open,
 * since local tables that may have changed are looked up.
 */
static void
count_transaction(const PapplyTap *tap)
{
	for (PapplyRemoteRelation *rel = tally.counted; rel != NULL; rel = rel->next_counted)
	{
		(void) papply_remote_relation_get(rel->remote_relid, true);
		if (is_left_out(rel))
			forget_changes(rel);
		add_to_statistics(rel);
		memset(rel->counts, 0, sizeof(rel->counts));
		rel->changed_rows = 0;
		rel->last_conflict.at = 0;
		rel->is_counted = false;
	}
	papply_statistics_count(PAPPLY_COUNT_TRANSACTIONS, 1);
	papply_statistics_count(PAPPLY_COUNT_NATIVE_TRANSACTIONS, 1);
	for (int i = 0; i < COUNTED_KINDS; i++)
		papply_statistics_count(PAPPLY_COUNT_INSERTS + i, tally.counts[i]);
	memset(&tally, 0, sizeof(tally));
}

void
papply_leader_count_init(void)
{
	papply_tap_observe(PAPPLY_TAP_CHANGE, count_change);
	papply_tap_observe(PAPPLY_TAP_END, count_transaction);
	papply_tap_observe(PAPPLY_TAP_ERROR, count_logged);
}
