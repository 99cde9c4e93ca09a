/*-------------------------------------------------------------------------
 * read_ahead.c
 *	  Ask storage for the pages of changes that are yet to be applied.
 *
 * Runs in a writer.
 *
 * Where rows have to be read from storage, a writer would wait for the leaf
 * page of the index, and then for the page of the table, of one change after
 * the other.  But the queue has the changes to come.  So a writer stops now and
 * then to look at entries ahead, in three stages: ask for the leaf page
 * (index_descent.c); when it has come, find the row in it and ask for the
 * page of the table; forget the change once it is claimed.  Waits of many
 * changes overlap, whoever applies them.
 *
 * It looks at what it has claimed itself, and then at what nobody has claimed:
 * a position in the pool (queue.c) is moved over each entry, so that no two
 * writers look at the same.  How many changes a writer has under way is
 * maintenance_io_concurrency, as in PostgreSQL's recovery, which does the same.
 * How far it has come with a change is written into the entry: who waits for its
 * turn, or sleeps, does not go on, and then who claims the change does.
 *
 * All this costs some microseconds for each change.  It is worth that if storage
 * is slow, and not if pages come from the operating system's cache; so now
 * and then a page is read at once, and the time measured.  Where nothing is
 * read, nothing is done but to compare a counter, once for each batch.
 *
 * Asking is only a hint: rows may move, pages split, dependencies do not
 * matter.  But the change need not be one of a transaction that is applied
 * now, so nothing here may wait for anybody: tables and indexes that are not
 * open in this transaction are locked (AccessShareLock) if that can be had at
 * once, and unlocked at the end of the stop; hence no deadlock.  Only tables are
 * looked at that this writer has prepared (target.c) and that changed in no
 * way since.
 *
 * Converting a key may throw, as it will when the change is applied.  Then what
 * is being applied is tried again, without reading ahead; the entry has been
 * passed and is not looked at again.
 *
 * The bytes of an entry stay while an older transaction is claimed and not
 * committed, which is true of all that is behind the change at hand.
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
#include "queue.h"
#include "read_ahead.h"
#include "target.h"

/* A stop each so many changes; it looks at so many entries at most. */
#define STOP_CHANGES 4
#define MAX_ENTRIES 64

/* Tables that one stop looks at. */
#define MAX_TABLES 8

/*
 * Changes under way, and how many of them may be the writer's own, or of others; more than
 * that in maintenance_io_concurrency has no effect.
 */
#define MAX_ITEMS 256
#define MAX_ITEMS_OF_ONE (MAX_ITEMS / 2)

/*
 * A page that comes sooner comes from memory of the operating system, one that
 * comes later counts as much as several of these: if some pages are slow, it
 * is they that matter.
 */
#define SLOW_READ_US 50
#define SLOW_POINTS 8
#define FAST_POINTS 2
#define MIN_POINTS 16			/* read-ahead is on */
#define MAX_POINTS 64

/*
 * One of so many pages is measured, which is to wait for it; while it is off, one
 * in so many batches that read, and one in each after a slow one.
 */
#define PROBE_PAGES 512
#define TRIAL_RANGES 8

/* It ends when nothing was read in so many batches. */
#define QUIET_RANGES 64

/*
 * A table whose last pages were all in memory is looked at rarely.
 */
#define RESIDENT_PAGES 32
#define RESIDENT_SHARE 16

/* A change whose pages are under way. */
typedef struct Pending
{
	uint64		position;		/* of its entry */
	bool		is_own;			/* this writer has claimed it */
	bool		is_leaf_asked;	/* somebody else did */
	bool		is_asked;		/* all that can be asked for was */
	int64		since;			/* the leaf page was asked for */
	BlockNumber leaf;
	Oid			file;			/* of the index */
} Pending;

/* A table that is open during a stop. */
typedef struct Table
{
	PapplyTarget *target;
	Relation	rel;			/* NULL: cannot be used now */
	Relation	index;
	bool		is_locked;		/* by us, until the end of the stop */
	BTScanInsert key;
} Table;

/* Were pages of a table in memory?  Tables may share a place, it does not matter. */
typedef struct Residency
{
	int			found;			/* changes since the last that was not */
	int			passed;			/* of these, not looked at */
} Residency;

static Pending items[MAX_ITEMS];
static int	item_count = 0;
static Table tables[MAX_TABLES];
static int	table_count = 0;
static Residency residencies[64];
static MemoryContext stop_context = NULL;
static PapplyChange change;		/* too large for the stack */

/* The range that is being applied. */
static bool is_active = false;
static uint64 own_last;			/* sequence number */
static uint64 own_position;		/* of the next entry of it to look at */
static int	changes;

/* Is it worth it? */
static bool is_trial = false;
static int	pages_since_probe = 0;
static int64 blocks_read = 0;	/* what was counted at the end of the last
								 * range */

/*** pages ***/

static int
points(void)
{
	return pg_atomic_read_u32(&papply_pool->slow_points);
}

static void
set_points(int n)
{
	pg_atomic_write_u32(&papply_pool->slow_points, Max(0, Min(MAX_POINTS, n)));
}

/* Moving average of slow reads. */
static int
slow_read_us(void)
{
	return pg_atomic_read_u32(&papply_pool->slow_read_us);
}

static void
note_read(double us)
{
	double		average = slow_read_us();

	pages_since_probe = 0;
	if (us < SLOW_READ_US)
	{
		set_points(points() - FAST_POINTS);
		return;
	}
	set_points(points() + SLOW_POINTS);
	average += (us - average) / (average == 0 ? 1 : 8);
	pg_atomic_write_u32(&papply_pool->slow_read_us, average);
}

/* Read a page now to see how long it takes, if it has to be read. */
static void
probe(Relation rel, BlockNumber block)
{
	int64		before = pgBufferUsage.shared_blks_read;
	instr_time	begin;
	instr_time	end;

	INSTR_TIME_SET_CURRENT(begin);
	ReleaseBuffer(ReadBuffer(rel, block));
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, begin);
	if (pgBufferUsage.shared_blks_read != before)
		note_read(INSTR_TIME_GET_MICROSEC(end));
}

/* Ask for a page; false if it is in memory. */
static bool
ask_for(Relation rel, BlockNumber block)
{
	if (pages_since_probe >= PROBE_PAGES)
		probe(rel, block);
	if (!PrefetchBuffer(rel, MAIN_FORKNUM, block).initiated_io)
		return false;
	pages_since_probe++;
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
	if (target->is_valid && ConditionalLockRelationOid(target->lookup.index, AccessShareLock))
	{
		if (target->is_valid)
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
	for (Table *table = tables; table < tables + table_count; table++)
	{
		if (table->rel == NULL || !table->is_locked)
			continue;
		index_close(table->index, AccessShareLock);
		relation_close(table->rel, AccessShareLock);
	}
	table_count = 0;
}

/* The table of a change, or NULL if it cannot be looked at. */
static Table *
table_of(const PapplyEntry *entry)
{
	uint32		remote_relid = papply_message_get_uint32(PapplyEntryData(entry) + 1);
	PapplyTarget *target = papply_target_peek(remote_relid, entry->relation_version);
	Table	   *table;

	if (target == NULL)
		return NULL;
	for (table = tables; table < tables + table_count; table++)
		if (table->target == target)
			return table->rel ? table : NULL;
	if (table_count == MAX_TABLES)
		return NULL;
	open_table(table, target);
	table_count++;
	return table->rel ? table : NULL;
}

static Residency *
residency_of(const Table *table)
{
	return &residencies[RelationGetRelid(table->rel) % lengthof(residencies)];
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

/* The checks of a domain, or of one inside, may be code of the user, which would run twice. */
static bool
input_runs_code(Oid type)
{
	char		typtype = get_typtype(type);

	return typtype != TYPTYPE_ENUM &&
		(typtype != TYPTYPE_BASE || OidIsValid(get_element_type(type)));
}

/* Columns are terminated in copies: the entry is shared. */
static bool
set_key_column(Table *table, int i, const PapplyTuple *tuple)
{
	PapplyTarget *target = table->target;
	int			attribute = target->lookup.attnums[i] - 1;
	int			column = attribute < 0 ? -1 : target->inputs[attribute].column;
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

/* The key that the change will look for; false if it has none. */
static bool
set_key(Table *table, PapplyEntry *entry)
{
	const PapplyTuple *tuple;

	papply_message_parse_change(PapplyEntryData(entry), entry->length, &change);
	tuple = change.has_old ? &change.old_tuple : &change.new_tuple;
	for (int i = 0; i < table->target->lookup.count; i++)
		if (!set_key_column(table, i, tuple))
			return false;
	return true;
}

/* The leaf page is there: ask for the page that it leads to. */
static bool
ask_for_row(Table *table, Pending *item)
{
	ItemPointerData row;

	item->is_asked = true;
	return papply_index_row(table->index, item->leaf, table->key, &row) &&
		ask_for(table->rel, ItemPointerGetBlockNumber(&row));
}

/*
 * Ask for the first page of a change that is not in memory; false if there is
 * none.  A leaf page that somebody else has asked for will be there by now.
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

/* Keys are converted and compared as the user who will apply the change. */
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

/* Look at an entry that was not looked at before. */
static void
look_at(PapplyEntry *entry, uint64 position, bool is_own, int64 now)
{
	Table	   *table = is_change(entry) ? table_of(entry) : NULL;
	Residency  *residency;
	Pending		item = {.position = position,.is_own = is_own,.since = now};

	if (table == NULL)
		return;
	item.is_leaf_asked = entry->ahead == PAPPLY_AHEAD_LEAF;
	residency = residency_of(table);
	entry->ahead = PAPPLY_AHEAD_DONE;
	if (residency->found >= RESIDENT_PAGES && ++residency->passed % RESIDENT_SHARE != 0)
		return;
	residency->found++;
	if (!as_table_owner(ask_for_change, table, entry, &item))
		return;
	if (!item.is_asked)
		entry->ahead = PAPPLY_AHEAD_LEAF;
	residency->found = 0;
	items[item_count++] = item;
}

/* Nothing that can be asked for, or need not be any more. */
static bool
is_done(const Pending *item, uint64 position, uint64 unclaimed_position)
{
	return item->position < position ||
		(item->is_asked && !item->is_own && item->position < unclaimed_position);
}

static bool
find_and_ask_for_row(Table *table, PapplyEntry *entry, Pending *item)
{
	return table->index->rd_rel->relfilenode == item->file && set_key(table, entry) &&
		ask_for_row(table, item);
}

/* Second stage of what is under way; false if the change need not be kept. */
static bool
go_on_with(Pending *item)
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
go_on_with_all(uint64 position, int64 now)
{
	uint64		unclaimed_position = papply_queue_unclaimed_position();
	int			count = item_count;

	item_count = 0;				/* what throws is forgotten, with the rest */
	for (int i = 0; i < count; i++)
	{
		Pending		item = items[i];

		CHECK_FOR_INTERRUPTS();
		if (is_done(&item, position, unclaimed_position))
			continue;
		if (!item.is_asked && now - item.since >= slow_read_us() && !go_on_with(&item))
			continue;
		items[item_count++] = item;
	}
}

/* The next entry of what this writer has claimed. */
static PapplyEntry *
next_own_entry(uint64 *position)
{
	PapplyTransaction *txn = papply_queue_transaction(own_last);
	bool		is_complete = (pg_atomic_read_u32(&txn->flags) & PAPPLY_TXN_COMPLETE) != 0;
	PapplyEntry *entry;

	pg_read_barrier();
	if (is_complete && own_position >= txn->end_position)
		return NULL;
	entry = papply_queue_read(&own_position);
	if (entry != NULL)
		*position = own_position - entry->size;
	return entry;
}

/*
 * Or of what nobody has claimed.  Changes of others must not make a transaction
 * fail that cannot begin once more.
 */
static PapplyEntry *
next_unclaimed_entry(uint64 *position)
{
	return papply_queue_can_rewind(own_last) ? papply_queue_look_ahead(position) : NULL;
}

/* Until so many changes, its own or others, are under way; false: there is no more. */
static bool
look_at_entries(bool is_own, int max, int64 now)
{
	int			limit = item_count + max;
	int			looked = 0;

	while (item_count < limit && looked < MAX_ENTRIES)
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

	for (int i = 0; i < item_count; i++)
		own += items[i].is_own;
	unclaimed = item_count - own;

	own_position = Max(own_position, behind);
	if (look_at_entries(true, max - own, now))
		return;
	if (unclaimed <= max * 3 / 4)	/* many at a time cost less */
		(void) look_at_entries(false, max - unclaimed, now);
}

static void
stop(uint64 position)
{
	MemoryContext old_context = MemoryContextSwitchTo(stop_context);
	int64		now = papply_clock_now();

	table_count = 0;			/* an error has closed what was open */
	go_on_with_all(position, now);
	look_ahead(position, now);
	close_tables();
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(stop_context);
}

void
papply_read_ahead(uint64 position)
{
	if (!is_active || changes++ % STOP_CHANGES != 0)
		return;
	if (is_trial)
		is_trial = is_active = false;
	stop(position);
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
	is_active = is_allowed && maintenance_io_concurrency > 0 &&
		(is_trial || papply_read_ahead_is_on());
	if (!is_active)
		return;
	if (stop_context == NULL)
		stop_context = AllocSetContextCreate(TopMemoryContext, "parallel_apply read-ahead",
											 ALLOCSET_DEFAULT_SIZES);
	if (is_trial)
		pages_since_probe = PROBE_PAGES;
	own_last = last;
	own_position = papply_queue_transaction(first)->start_position;
	changes = 0;
}

/* Where nothing is read there are no probes: forget what they said. */
static void
note_quiet_range(void)
{
	if (pg_atomic_fetch_add_u32(&papply_pool->quiet_ranges, 1) >= QUIET_RANGES)
		set_points(0);
}

void
papply_read_ahead_end(void)
{
	bool		has_read = pgBufferUsage.shared_blks_read != blocks_read;

	blocks_read = pgBufferUsage.shared_blks_read;
	if (!has_read)
	{
		if (points() > 0)
			note_quiet_range();
		return;
	}
	if (pg_atomic_read_u32(&papply_pool->quiet_ranges) > 0)
		pg_atomic_write_u32(&papply_pool->quiet_ranges, 0);
	if (points() < MIN_POINTS)
		is_trial = points() > 0 ||
			pg_atomic_fetch_add_u32(&papply_pool->reading_ranges, 1) % TRIAL_RANGES == 0;
}
