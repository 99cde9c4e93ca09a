/*-------------------------------------------------------------------------
 * insert_run.c
 *	  INSERTs into a table are applied together.
 *
 * Runs in a writer.
 *
 * A run is a series of INSERTs, in one transaction or across those of a batch.
 * Rows are formed and checked one by one, and put off.  Then the multi-insert
 * of the table inserts them, which locks and WAL-logs a page once for all rows
 * that fit on it.  After that they are inserted into the indexes, one index
 * after the other.  (COPY inserts into the indexes row by row.)  Rows of a
 * partitioned table are put off for the partition that each belongs to.
 *
 * Changes of other tables may be applied while rows are put off, and rows of
 * several tables may be put off at the same time.  So a run usually contains
 * what all transactions of a batch insert, although they also update other
 * tables.  If the order in the WAL matters (reorder.c), a run ends where a row
 * belongs to another table or partition.
 *
 * The result is the same, because only code that reads the table while rows
 * are put off could notice.  An UPDATE or DELETE of the table flushes the run
 * first, so the transaction itself finds its rows.  So does every change of a
 * table that takes no runs, which are those with user code.  The same goes for
 * partitioned tables and partitions, because one table may be reached by
 * several names.  The steps of ExecSimpleRelationInsert()
 * are done here in the same order, without triggers.
 * CheckCmdReplicaIdentity() does not concern INSERT.  If a unique index is
 * violated, the core apply loop reports which one, after the transaction has
 * failed twice.
 *
 * Waits: a row that is put off holds no lock and is in no index, so no
 * transaction can wait for it.  What commit_order.c and blockers.c say about
 * waits applies once it is flushed.  If an older transaction takes a unique
 * value meanwhile, the flush fails and the transaction is tried again in its
 * turn, as if the row had come a moment later.  The run is flushed before a
 * wait for a dependency, since there is time.  It is not flushed before a wait
 * for more data of a large transaction.  Otherwise a writer that keeps up with
 * the receiver would have no runs.  Only the commit of these rows makes them
 * visible, and it needs more data anyway.
 *
 * Since a run continues after changes of other tables, writers execute 4 %
 * fewer instructions for a transaction of TPC-C, and 2 % fewer for one of
 * TPC-B (bench/instructions; bench/results/2026-11-26-repetitions.txt).
 *
 * A bulk-insert state is not used.  Its ring of buffers would make writers
 * write the pages that they dirty, which the checkpointer does otherwise.  The
 * page that it keeps pinned would save one lookup in the buffer table for each
 * run.
 *
 * Memory: values live in a context of their own until the run ends, which it
 * does at the latest when RUN_BYTES are full.  Slots live as long as the
 * target, except that many are freed when it is closed.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/nodeModifyTable.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "insert_run.h"
#include "reorder.h"
#include "result_rel.h"

/* Maximum number of rows of a run: some pages of narrow rows. */
#define RUN_ROWS 256

/*
 * Maximum number of changes between the first row of a run and the flush, so
 * that a local session that inserts the same key soon finds the row.
 */
#define RUN_CHANGES 512

/* Maximum size of its values, which should stay in the CPU cache. */
#define RUN_BYTES (128 * 1024)

/*
 * A table that is closed keeps this many slots; small transactions need no
 * more.
 */
#define CACHED_SLOTS 16

/* The rows of one table.  A partitioned table has none; its partitions do. */
typedef struct PapplyRunRows
{
	MemoryContext context;		/* holds this and the slots */
	PapplyTarget *table;
	PapplyTarget *root;			/* of the table, or the table itself */
	struct PapplyRunRows *next; /* in the same run */
	TupleDesc	desc;			/* of the slots; not reference-counted */
	int			nrows;
	int			nslots;			/* made so far */
	TupleTableSlot *slots[RUN_ROWS];
} PapplyRunRows;

typedef struct Run
{
	PapplyRunRows *tables;		/* in the order of their first rows */
	PapplyRunRows **end;		/* of that list, unless it is empty */
	PapplyTarget *newest;		/* root of the row that was added last */
	int			rows;			/* of all tables; 0: nothing is put off */
	int			changes;		/* since the first row, of any table */
	PapplyTarget *inserting;	/* root of the rows that are being inserted */
	MemoryContext context;
} Run;

static Run	run;

void
papply_insert_run_prepare(PapplyTarget *target)
{
	Relation	rel = target->rel;

	target->takes_runs = !target->has_user_code && target->apply_mode == PAPPLY_TABLE_PARALLEL &&
		(rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
		 rel->rd_tableam == GetHeapamTableAmRoutine());
}

MemoryContext
papply_insert_run_memory(void)
{
	if (run.context == NULL)
		run.context = AllocSetContextCreate(TopMemoryContext, "parallel_apply insert run",
											RUN_BYTES, RUN_BYTES, RUN_BYTES);
	return run.context;
}

/* The first block of the context is always there, and RUN_BYTES long. */
static bool
is_full(void)
{
	return run.rows >= RUN_ROWS || run.changes >= RUN_CHANGES ||
		MemoryContextMemAllocated(run.context, false) > RUN_BYTES;
}

static PapplyRunRows *
rows_of(PapplyTarget *root, PapplyTarget *table)
{
	PapplyRunRows *rows = table->run_rows;

	if (rows == NULL)
	{
		MemoryContext context = AllocSetContextCreate(table->context, "parallel_apply run",
													  ALLOCSET_SMALL_SIZES);
		MemoryContext old_context = MemoryContextSwitchTo(context);

		rows = palloc0(sizeof(PapplyRunRows));
		rows->context = context;
		rows->table = table;
		rows->desc = CreateTupleDescCopyConstr(RelationGetDescr(table->rel));
		table->run_rows = rows;
		MemoryContextSwitchTo(old_context);
	}
	if (rows->nrows == 0)
	{
		rows->root = root;
		rows->next = NULL;
		if (run.tables == NULL)
			run.end = &run.tables;
		*run.end = rows;
		run.end = &rows->next;
	}
	return rows;
}

static TupleTableSlot *
next_slot(PapplyRunRows *rows)
{
	Assert(rows->nrows < RUN_ROWS && rows->nrows <= rows->nslots);
	if (rows->nrows == rows->nslots)
	{
		MemoryContext old_context = MemoryContextSwitchTo(rows->context);

		rows->slots[rows->nslots] = MakeSingleTupleTableSlot(rows->desc, &TTSOpsVirtual);
		rows->nslots++;
		MemoryContextSwitchTo(old_context);
	}
	rows->slots[rows->nrows]->tts_tableOid = InvalidOid;	/* as in apply.c */
	return ExecClearTuple(rows->slots[rows->nrows]);
}

/* Compute generated columns, and check the constraints of a row. */
static void
complete_and_check(ResultRelInfo *rel, TupleTableSlot *slot, EState *estate)
{
	TupleConstr *constr = RelationGetDescr(rel->ri_RelationDesc)->constr;

	if (constr != NULL)
	{
		if (constr->has_generated_stored)
			ExecComputeStoredGenerated(rel, estate, slot, CMD_INSERT);
		ExecConstraints(rel, slot, estate);
	}
	if (rel->ri_RelationDesc->rd_rel->relispartition)
		ExecPartitionCheck(rel, slot, estate, true);
}

/*
 * Insert all rows into one index after the other, because the pages that the
 * descent for one row has read are in the CPU cache for the next one.
 */
static void
insert_into_indexes(ResultRelInfo *rel, PapplyRunRows *rows, EState *estate)
{
	ResultRelInfo one = *rel;

	one.ri_NumIndices = 1;
	for (int i = 0; i < rel->ri_NumIndices; i++)
	{
		one.ri_IndexRelationDescs = &rel->ri_IndexRelationDescs[i];
		one.ri_IndexRelationInfo = &rel->ri_IndexRelationInfo[i];
		for (int j = 0; j < rows->nrows; j++)
		{
			papply_compat_insert_index_tuples(&one, rows->slots[j], estate);
			ResetPerTupleExprContext(estate);
		}
	}
}

static void
insert_rows(PapplyRunRows *rows, CommandId cid)
{
	ResultRelInfo *rel = papply_result_rel_insert(rows->table);
	EState	   *estate = rows->table->estate;
	MemoryContext old_context = MemoryContextSwitchTo(run.context);
	PapplyUserContext user_context;

	Assert(rows->table->is_open && rows->root->is_open);
	Assert(rows->nrows > 0);
	run.inserting = rows->root;
	papply_compat_begin_as_table_owner(rows->root->rel, &user_context);
	table_multi_insert(rel->ri_RelationDesc, rows->slots, rows->nrows, cid, 0, NULL);
	MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
	insert_into_indexes(rel, rows, estate);
	for (int i = 0; i < rows->nrows; i++)
		ExecClearTuple(rows->slots[i]);
	rows->nrows = 0;
	papply_compat_end_as_table_owner(&user_context);
	run.inserting = NULL;
	MemoryContextSwitchTo(old_context);
}

/*
 * Insert all rows that are put off.  Does not free their values, which may
 * still be needed.
 */
static void
insert_all(void)
{
	CommandId	cid = GetCurrentCommandId(true);

	for (; run.tables != NULL; run.tables = run.tables->next)
		insert_rows(run.tables, cid);
	run.rows = run.changes = 0;
	CommandCounterIncrement();
}

bool
papply_insert_run_add(PapplyTarget *root, PapplyTarget *table)
{
	TupleTableSlot *from = table->remote_slot;
	PapplyRunRows *rows;
	TupleTableSlot *slot;

	if (!table->takes_runs)
	{
		if (run.rows > 0)
			insert_all();
		return false;
	}
	if (run.tables != NULL && run.tables->table != table && !papply_reorder_is_allowed())
		insert_all();
	run.newest = root;
	rows = rows_of(root, table);
	slot = next_slot(rows);
	memcpy(slot->tts_values, from->tts_values, rows->desc->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, from->tts_isnull, rows->desc->natts * sizeof(bool));
	ExecStoreVirtualTuple(slot);
	complete_and_check(papply_result_rel_insert(table), slot, table->estate);
	rows->nrows++;
	run.rows++;
	return true;
}

void
papply_insert_run_flush(void)
{
	if (run.rows > 0)
		insert_all();
	if (run.context != NULL)
		MemoryContextReset(run.context);
}

const PapplyTarget *
papply_insert_run_inserting(void)
{
	return run.inserting;
}

void
papply_insert_run_close(PapplyTarget *table)
{
	if (table->run_rows == NULL || table->run_rows->nslots <= CACHED_SLOTS)
		return;
	MemoryContextDelete(table->run_rows->context);
	table->run_rows = NULL;
}

/*
 * May a change of this table precede the rows that are put off, or, if it is
 * an INSERT, join them?  Local tables are compared, because the publisher may
 * have renamed a table.
 */
static bool
is_independent(char type, const PapplyTarget *table)
{
	if (table->is_partitioned || table->is_partition)
		return false;
	for (const PapplyRunRows *rows = run.tables; rows != NULL; rows = rows->next)
		if (rows->table->local_relid == table->local_relid)
			return type == LOGICAL_REP_MSG_INSERT;
	return papply_reorder_is_allowed();
}

void
papply_insert_run_begin_change(char type, const PapplyTarget *table)
{
	if (run.rows == 0 || (type == LOGICAL_REP_MSG_INSERT && table == run.newest))
		return;
	if (!papply_insert_run_is_plain(table) || !is_independent(type, table))
		papply_insert_run_flush();
}

void
papply_insert_run_end_change(void)
{
	run.changes += run.rows > 0 ? 1 : 0;
	if (run.context != NULL && (run.rows == 0 || is_full()))
		papply_insert_run_flush();
}

void
papply_insert_run_forget(void)
{
	for (; run.tables != NULL; run.tables = run.tables->next)
		run.tables->nrows = 0;
	run.inserting = NULL;
	run.rows = run.changes = 0;
	if (run.context != NULL)
		MemoryContextReset(run.context);
}
