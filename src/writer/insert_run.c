/*-------------------------------------------------------------------------
 * insert_run.c
 *	  Consecutive INSERTs into one table are applied together.
 *
 * Runs in a writer.
 *
 * A run is a series of INSERTs of one remote relation, within a transaction or
 * across those of a batch.  Their rows are made and checked one by one, and put
 * off; then they go to the table by its multi-insert, which locks and logs a
 * page once for all rows that fit on it, and after that to the indexes, one after
 * the other.  So does COPY, but row by row.  Rows of a partitioned table are put off for
 * the partition that each belongs to; where the order in the WAL matters (reorder.c), a
 * run ends where a row belongs to another partition.
 *
 * Same result: all that could tell is code that sees the table while rows are
 * put off.  Anything but a further INSERT of the relation flushes the run first,
 * so the transaction itself finds its rows, and triggers have none before them:
 * tables with triggers that fire take no runs, nor do those whose constraints
 * have functions that may read a table.  What ExecSimpleRelationInsert() does is
 * done here in its order, without triggers; CheckCmdReplicaIdentity() has
 * nothing to say of an INSERT, and which unique index was violated is told by
 * the native loop, when the transaction has failed twice.
 *
 * WAITS.  A row that is put off locks nothing and is in no index, so nobody can
 * wait for it, and what commit_order.c says of waits is said of what has been
 * flushed.  If an older transaction takes a unique value meanwhile, the flush
 * fails and the transaction is tried again in its turn, as if the row had come
 * a moment later.  Before a wait for a dependency the run is flushed: time is
 * there.  A wait for more data of a large transaction leaves it: otherwise a
 * writer that keeps up with the receiver would have no runs, and all that waits
 * for these rows is their own commit, which takes more data first.
 *
 * Not used: a bulk-insert state.  Its ring of buffers would make writers write
 * what they dirty, up to now left to the checkpointer; and a page that it keeps
 * pinned, for one run, would save one look-up in the buffer table.
 *
 * Memory: values live in a context of their own, as long as the run, which ends
 * when RUN_BYTES are full; slots live with the target, many of them only until it
 * is closed.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/nodeModifyTable.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "called_functions.h"
#include "insert_run.h"
#include "reorder.h"
#include "table_class.h"

/* A run is no longer than this: some pages of narrow rows. */
#define RUN_ROWS 256

/* Nor do its values have more bytes; they should stay in a processor's cache. */
#define RUN_BYTES (128 * 1024)

/* A table that is closed keeps so many slots: small transactions need no more. */
#define KEPT_SLOTS 16

/* The rows of one table: not of a partitioned one, but of its partitions. */
typedef struct PapplyRunRows
{
	MemoryContext context;		/* of this and the slots */
	PapplyTarget *table;
	struct PapplyRunRows *next; /* of this run */
	TupleDesc	desc;			/* of the slots; nobody counts references */
	int			nrows;
	int			nslots;			/* made so far */
	TupleTableSlot *slots[RUN_ROWS];
} PapplyRunRows;

static PapplyTarget *run_root = NULL;	/* NULL: nothing is put off */
static PapplyRunRows *run_tables = NULL;
static int	run_rows = 0;
static MemoryContext run_context = NULL;

static bool
has_mutable_check(TupleDesc desc)
{
	TupleConstr *constr = desc->constr;

	for (int i = 0; constr != NULL && i < constr->num_check; i++)
		if (contain_mutable_functions(stringToNode(constr->check[i].ccbin)))
			return true;
	return false;
}

static bool
is_mutable_domain(Oid type)
{
	ListCell   *lc;

	foreach(lc, papply_functions_domain_checks(type))
		if (contain_mutable_functions(lfirst(lc)))
		return true;
	return false;
}

/* May a constraint find out which rows are in a table? */
static bool
has_mutable_constraint(TupleDesc desc)
{
	for (int i = 0; i < desc->natts; i++)
		if (!TupleDescAttr(desc, i)->attisdropped &&
			is_mutable_domain(TupleDescAttr(desc, i)->atttypid))
			return true;
	return has_mutable_check(desc);
}

void
papply_insert_run_prepare(PapplyTarget *target)
{
	Relation	rel = target->rel;

	target->takes_runs = !target->has_triggers && target->table_class == PAPPLY_TABLE_PARALLEL &&
		(rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ||
		 (rel->rd_tableam == GetHeapamTableAmRoutine() &&
		  !has_mutable_constraint(RelationGetDescr(rel))));
}

MemoryContext
papply_insert_run_memory(void)
{
	if (run_context == NULL)
		run_context = AllocSetContextCreate(TopMemoryContext, "parallel_apply insert run",
											RUN_BYTES, RUN_BYTES, RUN_BYTES);
	return run_context;
}

/* The first block, which is always there, is RUN_BYTES long. */
static bool
is_full(void)
{
	return run_rows >= RUN_ROWS || MemoryContextMemAllocated(run_context, false) > RUN_BYTES;
}

static PapplyRunRows *
rows_of(PapplyTarget *table)
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
		rows->next = run_tables;
		run_tables = rows;
	}
	return rows;
}

static TupleTableSlot *
next_slot(PapplyRunRows *rows)
{
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

/* What has to be true of a row before it is inserted. */
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
 * One index after the other: what the descent for a row has read, the next one finds in the
 * processor's cache.
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
	ResultRelInfo *rel = papply_target_insert_rel(rows->table);
	EState	   *estate = rows->table->estate;
	MemoryContext old_context = MemoryContextSwitchTo(run_context);

	table_multi_insert(rel->ri_RelationDesc, rows->slots, rows->nrows, cid, 0, NULL);
	MemoryContextSwitchTo(GetPerTupleMemoryContext(estate));
	insert_into_indexes(rel, rows, estate);
	for (int i = 0; i < rows->nrows; i++)
		ExecClearTuple(rows->slots[i]);
	rows->nrows = 0;
	MemoryContextSwitchTo(old_context);
}

/* What is put off goes to its tables; the values may still be needed. */
static void
insert_all(void)
{
	CommandId	cid = GetCurrentCommandId(true);
	PapplyUserContext user_context;

	papply_compat_begin_as_table_owner(run_root->rel, &user_context);
	for (; run_tables != NULL; run_tables = run_tables->next)
		insert_rows(run_tables, cid);
	papply_compat_end_as_table_owner(&user_context);
	run_root = NULL;
	run_rows = 0;
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
		if (run_root != NULL)
			insert_all();
		return false;
	}
	if (run_tables != NULL && run_tables->table != table && !papply_reorder_is_allowed())
		insert_all();
	run_root = root;
	rows = rows_of(table);
	slot = next_slot(rows);
	memcpy(slot->tts_values, from->tts_values, rows->desc->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, from->tts_isnull, rows->desc->natts * sizeof(bool));
	ExecStoreVirtualTuple(slot);
	complete_and_check(papply_target_insert_rel(table), slot, table->estate);
	rows->nrows++;
	run_rows++;
	return true;
}

void
papply_insert_run_flush(void)
{
	if (run_root != NULL)
		insert_all();
	if (run_context != NULL)
		MemoryContextReset(run_context);
}

LogicalRepRelId
papply_insert_run_relation(void)
{
	return run_root != NULL ? run_root->key.remote_relid : InvalidOid;
}

void
papply_insert_run_close(PapplyTarget *table)
{
	if (table->run_rows == NULL || table->run_rows->nslots <= KEPT_SLOTS)
		return;
	MemoryContextDelete(table->run_rows->context);
	table->run_rows = NULL;
}

void
papply_insert_run_begin_change(char type, LogicalRepRelId remote_relid, uint32 version)
{
	if (run_root != NULL &&
		(type != LOGICAL_REP_MSG_INSERT || run_root->key.remote_relid != remote_relid ||
		 run_root->version != version))
		papply_insert_run_flush();
}

void
papply_insert_run_end_change(void)
{
	if (run_context != NULL && (run_root == NULL || is_full()))
		papply_insert_run_flush();
}

void
papply_insert_run_forget(void)
{
	for (; run_tables != NULL; run_tables = run_tables->next)
		run_tables->nrows = 0;
	run_root = NULL;
	run_rows = 0;
	if (run_context != NULL)
		MemoryContextReset(run_context);
}
