/*-------------------------------------------------------------------------
 * read_ahead.c
 *	  Ask storage for the pages of changes that will be applied later.
 *
 * Runs in a writer.
 *
 * If rows have to be read from storage, a writer would wait for the leaf page
 * of the index, and then for the page of the table, of one change after the
 * other.  But the queue contains the following changes.  So a writer stops
 * from time to time to look at entries ahead, in three stages.  It asks for
 * the leaf page (index_descent.c).  When the page has arrived, it finds the
 * row in it and asks for the page of the table.  It forgets the change once it
 * is claimed.  So the waits of many changes overlap, whichever writer applies
 * them.
 *
 * A writer looks first at what it has claimed itself, and then at what no
 * writer has claimed.  For the latter, a position in the pool (queue.c) is
 * moved over each entry, so no two writers look at the same one.  A writer has
 * up to maintenance_io_concurrency changes of each kind under way, which
 * PostgreSQL's recovery prefetch uses as well.  The stage that a change has
 * reached is stored in its entry.  If the writer that looked at it sleeps or
 * waits for its turn, the writer that claims the change continues.
 *
 * All this costs some microseconds for each change.  That pays if storage is
 * slow, but not if pages come from the operating system's cache.  So from time
 * to time a page is read synchronously, and the time measured.  As long as
 * nothing is read, the only cost is comparing a counter once for each batch.
 *
 * Asking is only a hint, so it does not matter if rows move, pages split, or
 * dependencies are not committed.  But the change may belong to a transaction
 * that is not being applied yet, so nothing here may wait for another
 * transaction.  Tables and indexes that are not open in this transaction are
 * locked (AccessShareLock) only if that is possible without waiting, and
 * unlocked at the end of the stop.  Hence there is no deadlock.  Only tables
 * that this writer has prepared (target.c), and that have not changed since,
 * are looked at.
 *
 * Converting a key may throw an error, as it will when the change is applied.
 * Then the transactions that are being applied are tried again without reading
 * ahead.  The entry has been passed and is not looked at again.
 *
 * The bytes of an entry are kept while an older transaction is claimed and not
 * committed, which is true of everything behind the present change.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "access/relation.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "apply.h"
#include "clock.h"
#include "index_descent.h"
#include "message.h"
#include "pool.h"
#include "queue.h"
#include "read_ahead.h"
#include "target.h"

/*
 * A writer stops once in STOP_CHANGES changes, and looks at up to MAX_ENTRIES
 * entries of each kind.
 */
#define STOP_CHANGES 4
#define MAX_ENTRIES 64

/* Tables that one stop looks at. */
#define MAX_TABLES 8

/*
 * Changes under way, and how many of them may be either the writer's own or
 * unclaimed.  A higher maintenance_io_concurrency has no effect.
 */
#define MAX_ITEMS 256
#define MAX_ITEMS_OF_ONE (MAX_ITEMS / 2)

/*
 * A read that takes less time than SLOW_READ_US is assumed to come from the
 * operating system's cache.  A slow read counts more than a fast one, because
 * the slow reads matter even if only some pages are slow.
 */
#define SLOW_READ_US 50
#define SLOW_POINTS 8
#define FAST_POINTS 2
#define MIN_POINTS 16			/* read-ahead is on */
#define MAX_POINTS 64

/*
 * One in PROBE_PAGES pages is read synchronously to measure it.  While
 * read-ahead is off, this is tried in one of TRIAL_RANGES batches that read,
 * and in each batch after a slow read.
 */
#define PROBE_PAGES 512
#define TRIAL_RANGES 8

/* Read-ahead is turned off after this number of batches that read nothing. */
#define QUIET_RANGES 64

/*
 * If the pages of the last RESIDENT_PAGES changes of a table were in memory,
 * only one in RESIDENT_SHARE changes is looked at.
 */
#define RESIDENT_PAGES 32
#define RESIDENT_SHARE 16

/* A change whose pages are under way. */
typedef struct Pending
{
	uint64		position;		/* of its entry */
	bool		is_own;			/* this writer has claimed it */
	bool		is_leaf_asked;	/* another writer has asked for the leaf page */
	bool		is_asked;		/* all its pages have been asked for */
	int64		since;			/* when the leaf page was asked for */
	BlockNumber leaf;
	Oid			file;			/* of the index */
} Pending;

/* A table that is open during a stop. */
typedef struct Table
{
	PapplyTarget *target;
	Relation	rel;			/* NULL: cannot be used now */
	Relation	index;
	bool		is_locked;		/* by this file, until the end of the stop */
	BTScanInsert key;
} Table;

/*
 * Changes of a table since the last one that asked for a page.  Tables may
 * share a place, which does not matter.
 */
static uint32 resident_changes[64];

/* The changes whose pages are under way. */
typedef struct PendingChanges
{
	Pending		items[MAX_ITEMS];
	int			count;
} PendingChanges;

static PendingChanges pending;

/* One stop. */
typedef struct Stop
{
	MemoryContext context;		/* reset at its end; kept */
	Table		tables[MAX_TABLES];
	int			table_count;
	PapplyChange change;		/* too large for the stack */
} Stop;

static Stop stop;

/* The range that is being applied. */
typedef struct ReadRange
{
	bool		is_active;		/* are there stops? */
	uint64		last;			/* its last sequence number */
	uint64		position;		/* of its next entry to look at */
	int			changes;
} ReadRange;

static ReadRange read_range;

/* Does reading ahead pay? */
typedef struct Trend
{
	bool		is_trial;		/* the next range probes once */
	int			pages_since_probe;
	int64		blocks_read;	/* the counter at the end of the last range */
} Trend;

static Trend trend;

/*** pages ***/

static int
points(void)
{
	return pg_atomic_read_u32(&papply_pool->ahead.slow_points);
}

static void
set_points(int n)
{
	pg_atomic_write_u32(&papply_pool->ahead.slow_points, Max(0, Min(MAX_POINTS, n)));
}

/*
 * Read a page now to measure how long it takes, if it is not in memory.  The
 * moving average is that of slow reads.
 */
static void
probe(Relation rel, BlockNumber block)
{
	int64		before = pgBufferUsage.shared_blks_read;
	int64		begin = papply_clock_now();
	double		average = pg_atomic_read_u32(&papply_pool->ahead.slow_read_us);
	double		us;

	ReleaseBuffer(ReadBuffer(rel, block));
	if (pgBufferUsage.shared_blks_read == before)
		return;
	us = papply_clock_now() - begin;
	trend.pages_since_probe = 0;
	if (us < SLOW_READ_US)
	{
		set_points(points() - FAST_POINTS);
		return;
	}
	set_points(points() + SLOW_POINTS);
	average += (us - average) / (average == 0 ? 1 : 8);
	pg_atomic_write_u32(&papply_pool->ahead.slow_read_us, average);
}

/* Ask for a page.  Returns false if it is in memory. */
static bool
ask_for(Relation rel, BlockNumber block)
{
	if (trend.pages_since_probe >= PROBE_PAGES)
		probe(rel, block);
	if (!PrefetchBuffer(rel, MAIN_FORKNUM, block).initiated_io)
		return false;
	trend.pages_since_probe++;
	papply_pool->writers[papply_pool_waiter].counters.prefetched++;
	return true;
}

/*** tables ***/

static bool
lock_table(Table *table)
{
	PapplyTarget *target = table->target;

	if (!ConditionalLockRelationOid(target->local_relid, AccessShareLock))
		return false;
	if (target->state == PAPPLY_TARGET_READY && ConditionalLockRelationOid(target->lookup.index, AccessShareLock))
	{
		if (target->state == PAPPLY_TARGET_READY)
			return true;
		UnlockRelationOid(target->lookup.index, AccessShareLock);
	}
	UnlockRelationOid(target->local_relid, AccessShareLock);
	return false;
}

static void
open_table(Table *table, PapplyTarget *target)
{
	table->target = target;
	table->rel = NULL;
	if (target->is_open && target->index_rel != NULL)
	{
		table->is_locked = false;
		table->rel = target->rel;
		table->index = target->index_rel;
	}
	else if (lock_table(table))
	{
		table->is_locked = true;
		table->rel = relation_open(target->local_relid, NoLock);
		table->index = index_open(target->lookup.index, NoLock);
	}
	if (table->rel != NULL)
		table->key = papply_index_key(table->index);
}

static void
close_tables(void)
{
	for (Table *table = stop.tables; table < stop.tables + stop.table_count; table++)
	{
		if (table->rel == NULL || !table->is_locked)
			continue;
		index_close(table->index, AccessShareLock);
		relation_close(table->rel, AccessShareLock);
	}
	stop.table_count = 0;
}

/* Return the table of a change, or NULL if it cannot be looked at. */
static Table *
table_of(const PapplyEntry *entry)
{
	uint32		remote_relid = papply_message_get_uint32(PapplyEntryData(entry) + 1);
	PapplyTarget *target = papply_target_peek(remote_relid, entry->relation_version);
	Table	   *table;

	if (target == NULL)
		return NULL;
	for (table = stop.tables; table < stop.tables + stop.table_count; table++)
		if (table->target == target)
			return table->rel ? table : NULL;
	if (stop.table_count == MAX_TABLES)
		return NULL;
	open_table(table, target);
	stop.table_count++;
	return table->rel ? table : NULL;
}

/*** changes ***/

static bool
is_change(const PapplyEntry *entry)
{
	if (entry->kind != PAPPLY_ENTRY_MESSAGE || entry->length < 5)
		return false;
	switch (PapplyEntryData(entry)[0])
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			return true;
		default:
			return false;
	}
}

/*
 * Can the input function run user code, such as the checks of a domain in the
 * type?  Such code would run twice.
 */
static bool
input_runs_code(Oid type)
{
	char		typtype = get_typtype(type);

	return typtype != TYPTYPE_ENUM &&
		(typtype != TYPTYPE_BASE || OidIsValid(get_element_type(type)));
}

/*
 * Set a column of the key.  Its text is terminated in a copy, because the
 * entry is shared.
 */
static bool
set_key_column(Table *table, int i, const PapplyTuple *tuple)
{
	PapplyTarget *target = table->target;
	int			attribute = target->lookup.attnums[i] - 1;
	int			column = target->inputs[attribute].column;
	Form_pg_attribute att;
	PapplyColumn copy;

	if (column < 0 || column >= tuple->ncolumns)
		return false;
	att = TupleDescAttr(RelationGetDescr(table->rel), attribute);
	if (target->inputs[attribute].fast_input == NULL && input_runs_code(att->atttypid))
		return false;
	copy = tuple->columns[column];
	if (copy.kind != LOGICALREP_COLUMN_TEXT && copy.kind != LOGICALREP_COLUMN_BINARY)
		return false;
	if (copy.kind == LOGICALREP_COLUMN_TEXT)
		copy.data = pnstrdup(copy.data, copy.length);
	table->key->scankeys[i].sk_argument = papply_apply_input(target, att, &copy);
	return true;
}

/*
 * Set the key that the change will search for.  Returns false if it has none.
 */
static bool
set_key(Table *table, PapplyEntry *entry)
{
	PapplyMessage message = papply_message_read(PapplyEntryData(entry), entry->length);
	const PapplyTuple *tuple;

	papply_message_parse_change(&message, &stop.change);
	tuple = stop.change.has_old ? &stop.change.old_tuple : &stop.change.new_tuple;
	for (int i = 0; i < table->target->lookup.count; i++)
		if (!set_key_column(table, i, tuple))
			return false;
	return true;
}

/* Ask for the page of the table that the leaf page leads to. */
static bool
ask_for_row(Table *table, Pending *item)
{
	ItemPointerData row;

	item->is_asked = true;
	return papply_index_row(table->index, item->leaf, table->key, &row) &&
		ask_for(table->rel, ItemPointerGetBlockNumber(&row));
}

/*
 * Ask for the first page of a change that is not in memory.  Returns false if
 * there is none.  A leaf page that another writer has asked for should have
 * arrived by now.
 */
static bool
ask_for_change(Table *table, PapplyEntry *entry, Pending *item)
{
	bool		is_insert = PapplyEntryData(entry)[0] == LOGICAL_REP_MSG_INSERT;

	if (!set_key(table, entry))
		return false;
	item->file = table->index->rd_rel->relfilenode;
	item->leaf = papply_index_leaf(table->rel, table->index, table->key);
	if (item->leaf == InvalidBlockNumber)
		return false;
	item->is_asked = is_insert;
	if (!item->is_leaf_asked && ask_for(table->index, item->leaf))
		return true;
	return !is_insert && ask_for_row(table, item);
}

/*
 * Call a function as the user that will apply the change, because it converts
 * and compares keys.
 */
static bool
as_table_owner(bool (*function) (Table *, PapplyEntry *, Pending *),
			   Table *table, PapplyEntry *entry, Pending *item)
{
	PapplyUserContext user_context;
	bool		result;

	papply_compat_begin_as_table_owner(table->rel, &user_context);
	result = function(table, entry, item);
	papply_compat_end_as_table_owner(&user_context);
	return result;
}

/*
 * Look at an entry that no writer has looked at before, or whose leaf page
 * only has been asked for.
 */
static void
look_at(PapplyEntry *entry, uint64 position, bool is_own, int64 now)
{
	Table	   *table = is_change(entry) ? table_of(entry) : NULL;
	uint32	   *resident;
	Pending		item = {.position = position,.is_own = is_own,.since = now};

	if (table == NULL)
		return;
	item.is_leaf_asked = entry->ahead == PAPPLY_AHEAD_LEAF;
	entry->ahead = PAPPLY_AHEAD_DONE;
	resident = &resident_changes[RelationGetRelid(table->rel) % lengthof(resident_changes)];
	if (++*resident > RESIDENT_PAGES && *resident % RESIDENT_SHARE != 0)
		return;
	if (!as_table_owner(ask_for_change, table, entry, &item))
		return;
	if (!item.is_asked)
		entry->ahead = PAPPLY_AHEAD_LEAF;
	*resident = 0;
	Assert(pending.count < MAX_ITEMS);
	pending.items[pending.count++] = item;
}

static bool
find_and_ask_for_row(Table *table, PapplyEntry *entry, Pending *item)
{
	return table->index->rd_rel->relfilenode == item->file && set_key(table, entry) &&
		ask_for_row(table, item);
}

/*
 * Do the second stage of a change.  Returns false if the change need not be
 * kept.
 */
static bool
continue_with(Pending *item)
{
	uint64		position = item->position;
	PapplyEntry *entry = papply_queue_read(&position);
	Table	   *table;

	if (entry->ahead == PAPPLY_AHEAD_DONE)
		return false;
	entry->ahead = PAPPLY_AHEAD_DONE;
	table = table_of(entry);
	return table != NULL && as_table_owner(find_and_ask_for_row, table, entry, item);
}

static void
continue_with_all(uint64 position, int64 now)
{
	uint64		unclaimed_position = papply_queue_unclaimed_position();
	int			count = pending.count;

	pending.count = 0;			/* after an error, all are forgotten */
	for (int i = 0; i < count; i++)
	{
		Pending		item = pending.items[i];

		CHECK_FOR_INTERRUPTS();

		/* Is the change done, or does another writer apply it? */
		if (item.position < position ||
			(item.is_asked && !item.is_own && item.position < unclaimed_position))
			continue;
		if (!item.is_asked &&
			now - item.since >= pg_atomic_read_u32(&papply_pool->ahead.slow_read_us) &&
			!continue_with(&item))
			continue;
		pending.items[pending.count++] = item;
	}
}

/* Return the next entry of what this writer has claimed. */
static PapplyEntry *
next_own_entry(uint64 *position)
{
	PapplyTransaction *txn = papply_queue_transaction(read_range.last);
	bool		is_complete = papply_queue_is_complete(txn);
	PapplyEntry *entry;

	pg_read_barrier();
	if (is_complete && read_range.position >= txn->end_position)
		return NULL;
	entry = papply_queue_read(&read_range.position);
	if (entry != NULL)
		*position = read_range.position - entry->size;
	return entry;
}

/*
 * Return the next entry that no writer has claimed.  Such an entry may throw
 * an error, so it must not be used if the writer's own transaction cannot be
 * rewound.
 */
static PapplyEntry *
next_unclaimed_entry(uint64 *position)
{
	return papply_queue_can_rewind(read_range.last) ? papply_queue_look_ahead(position) : NULL;
}

/*
 * Look at up to MAX_ENTRIES entries, until max more changes are under way.
 * Returns false if there are no more entries.
 */
static bool
look_at_entries(bool is_own, int max, int64 now)
{
	int			limit = pending.count + max;
	int			looked = 0;

	while (pending.count < limit && looked < MAX_ENTRIES)
	{
		uint64		position;
		PapplyEntry *entry = is_own ? next_own_entry(&position) : next_unclaimed_entry(&position);

		if (entry == NULL)
			return false;
		CHECK_FOR_INTERRUPTS();
		if (entry->ahead == PAPPLY_AHEAD_DONE)
			continue;
		look_at(entry, position, is_own, now);
		looked++;
	}
	return true;
}

static void
look_ahead(uint64 behind, int64 now)
{
	int			max = Min(MAX_ITEMS_OF_ONE, maintenance_io_concurrency);
	int			own = 0;
	int			unclaimed;

	for (int i = 0; i < pending.count; i++)
		own += pending.items[i].is_own;
	unclaimed = pending.count - own;

	read_range.position = Max(read_range.position, behind);
	if (look_at_entries(true, max - own, now))
		return;
	if (unclaimed <= max * 3 / 4)	/* many at a time cost less */
		(void) look_at_entries(false, max - unclaimed, now);
}

static void
make_stop(uint64 position)
{
	MemoryContext old_context = MemoryContextSwitchTo(stop.context);
	int64		now = papply_clock_now();

	stop.table_count = 0;		/* after an error, they have been closed */
	continue_with_all(position, now);
	look_ahead(position, now);
	close_tables();
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(stop.context);
}

void
papply_read_ahead(uint64 position)
{
	if (!read_range.is_active || read_range.changes++ % STOP_CHANGES != 0)
		return;
	if (trend.is_trial)
		trend.is_trial = read_range.is_active = false;
	make_stop(position);
}

/*** when ***/

bool
papply_read_ahead_is_on(void)
{
	return points() >= MIN_POINTS && maintenance_io_concurrency > 0;
}

void
papply_read_ahead_begin(uint64 first, uint64 last, bool is_allowed)
{
	read_range.is_active = is_allowed && maintenance_io_concurrency > 0 &&
		(trend.is_trial || papply_read_ahead_is_on());
	if (!read_range.is_active)
		return;
	if (stop.context == NULL)
		stop.context = AllocSetContextCreate(TopMemoryContext, "parallel_apply read-ahead",
											 ALLOCSET_DEFAULT_SIZES);
	if (trend.is_trial)
		trend.pages_since_probe = PROBE_PAGES;
	read_range.last = last;
	read_range.position = papply_queue_transaction(first)->start_position;
	read_range.changes = 0;
}

void
papply_read_ahead_end(void)
{
	bool		has_read = pgBufferUsage.shared_blks_read != trend.blocks_read;

	trend.blocks_read = pgBufferUsage.shared_blks_read;
	if (!has_read)
	{
		/* there are no probes, so forget the results of earlier ones */
		if (points() > 0 &&
			pg_atomic_fetch_add_u32(&papply_pool->ahead.quiet_ranges, 1) >= QUIET_RANGES)
			set_points(0);
		return;
	}
	if (pg_atomic_read_u32(&papply_pool->ahead.quiet_ranges) > 0)
		pg_atomic_write_u32(&papply_pool->ahead.quiet_ranges, 0);
	if (points() < MIN_POINTS)
		trend.is_trial = points() > 0 ||
			pg_atomic_fetch_add_u32(&papply_pool->ahead.reading_ranges, 1) % TRIAL_RANGES == 0;
}
