/*-------------------------------------------------------------------------
 * target.h
 *	  The local table that changes of a remote relation are applied to.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TARGET_H
#define PAPPLY_TARGET_H

#include "access/skey.h"
#include "executor/executor.h"
#include "lib/ilist.h"
#include "replication/logicalrelation.h"
#include "utils/snapshot.h"

#include "apply_mode.h"
#include "fast_input.h"
#include "function_cache.h"
#include "message.h"
#include "table_statistics.h"

/* How a published column is converted to the value of a local one. */
typedef struct PapplyColumnInput
{
	int			column;			/* its number in the message; -1: not
								 * published */
	bool		is_key;			/* part of the replica identity */
	bool		is_text;		/* a value is the text as it was sent */
	Oid			text_param;
	Oid			binary_param;
	FmgrInfo	text_function;
	PapplyFastInput fast_input; /* used instead if possible; or NULL */
	FmgrInfo	binary_function;	/* fn_oid 0: not looked up yet */
} PapplyColumnInput;

/* How a row is found by an index. */
typedef struct PapplyIndexKeys
{
	Oid			index;			/* InvalidOid: the server's sequential scan is
								 * used */
	bool		is_identity;	/* otherwise whole rows are compared */
	bool		finds_nulls;
	bool		is_btree;		/* index_descent.h can search it */
	FmgrInfo   *equality;		/* for each column; fn_oid 0: not compared */
	int			count;			/* of key columns in the search */
	AttrNumber	attnums[INDEX_MAX_KEYS];
	ScanKeyData keys[INDEX_MAX_KEYS];
} PapplyIndexKeys;

/* The table that has the name of a remote relation, or a partition of it. */
typedef struct PapplyTargetKey
{
	LogicalRepRelId remote_relid;
	Oid			partition;		/* InvalidOid: the table itself */
} PapplyTargetKey;

/*
 * State of what is kept of a table across transactions.  An invalidation makes
 * it stale at any time, also while the table is open.
 */
typedef enum PapplyTargetState
{
	PAPPLY_TARGET_STALE = 0,	/* must be prepared before its next use */
	PAPPLY_TARGET_PREPARING,	/* the same, if an error ends that */
	PAPPLY_TARGET_READY
} PapplyTargetState;

typedef struct PapplyTarget
{
	PapplyTargetKey key;

	/* not set in partitions */
	uint32		version;		/* of the remote definition */
	uint32		schema_changes; /* counted when it was loaded */
	LogicalRepRelMapEntry *entry;	/* in the server's map */
	uint32		state_counter;	/* when the entry's sync state was read */
	bool		has_generated;	/* stored generated columns */
	char	   *label;			/* "schema.table" on the publisher */

	uint32		range_number;	/* number of the range that opened it last; 0:
								 * none */

	/* kept across transactions, until an invalidation */
	PapplyTargetState state;
	Oid			userid;			/* role that may call its functions */
	PapplyFunctionCache functions;
	Oid			local_relid;
	bool		is_partitioned;
	bool		is_partition;
	MemoryContext context;		/* holds the fields below */
	PapplyColumnInput *inputs;	/* one for each local column */
	int			ndefaults;
	int		   *default_columns;
	ExprState **default_exprs;
	bool		has_mutable_default;	/* for example now() */
	bool		is_updatable;	/* the publisher sends enough to identify rows */
	PapplyIndexKeys lookup;
	bool		has_other_unique;	/* a unique or exclusion constraint other
									 * than that of the replica identity */
	AttrMap    *from_root;		/* of a partition; NULL: same columns as its
								 * root */
	AttrMap    *to_root;
	PapplyApplyMode apply_mode;
	PapplyApplyModeReason reason;	/* why it is not parallel */
	bool		has_triggers;	/* that fire in replica mode */
	bool		has_user_code;	/* triggers, or functions other than the
								 * server's own */
	bool		takes_runs;		/* INSERTs are combined: see insert_run.c */
	struct PapplyRunRows *run_rows;

	/* for rights.c */
	AclMode		allowed;		/* rights that allowed_to was found to have */
	Oid			allowed_to;
	uint32		allowed_at;		/* value of its counter of changes then */
	AclMode		noted;			/* rights that are noted as used by this range */
	uint32		noted_in;		/* number of that range */

	/* for account.c; not used in partitions */
	uint64		counts[PAPPLY_TABLE_COUNTERS];	/* not added to the statistics
												 * yet */
	PapplyConflict last_conflict;	/* if one is counted */
	bool		is_counted;		/* some count is not 0 */
	struct PapplyTarget *next_counted;
	PapplyTableHint hint;

	/* within a local transaction */
	bool		is_open;
	dlist_node	open_link;
	Relation	rel;
	ModifyTableState *routing;	/* of a partitioned table, else NULL */
	int			open_partitions;
	Oid			root_relid;		/* of itself, or of its root */
	EState	   *estate;			/* a partition uses that of its root */
	ResultRelInfo *insert_rel;
	ResultRelInfo *update_rel;	/* the same as insert_rel if possible */
	Bitmapset  *updated;		/* the columns of the root that update_rel is
								 * set up for */
	TupleTableSlot *remote_slot;	/* the root's, if the columns are the same */
	TupleTableSlot *local_slot;
	EPQState	epqstate;
	Relation	index_rel;		/* the index of lookup, if it has been used */
	IndexScanDesc index_scan;
	MemoryContext scan_context; /* of index_scan, if there is one */
	SnapshotData dirty_snapshot;
} PapplyTarget;

/* Changes must be applied in their turn, and this range does not. */
#define PAPPLY_ERRCODE_NOT_IN_TURN	MAKE_SQLSTATE('P', 'A', '0', '0', '4')

/* Call once in a writer, when it is connected. */
extern void papply_target_init(void);

/*
 * Begin a range of transactions.  If it is a batch, tables with user code cannot
 * be opened: what the code sets for its transaction (SET LOCAL, SET
 * CONSTRAINTS), and the number and notifications of that, must not be shared
 * with other remote transactions.
 */
extern void papply_target_begin_range(bool is_batch);

/*
 * Return whether all tables that were opened since papply_target_begin_range()
 * are still synchronized, and the functions and types that they use
 * unchanged, as far as invalidations have been accepted.  Must be called in a transaction if any
 * table was opened.
 */
extern bool papply_target_range_is_current(void);

/*
 * Return the target of a remote relation.  It is open until the local
 * transaction ends or papply_target_release() closes it.  pg_stat_activity
 * shows it.  Throws an error if a writer cannot apply changes to it, or cannot
 * apply them now: changes of a table of apply mode exclusive require
 * is_exclusive (PAPPLY_ERRCODE_NOT_IN_TURN), and those of a table with user
 * code no batch.
 */
extern PapplyTarget *papply_target_open(LogicalRepRelId remote_relid, uint32 version,
										bool is_exclusive);

/*
 * Return the target of a remote relation, which need not be open, or NULL.  It
 * is returned only if it is prepared for this version, if an index that is the
 * replica identity finds its rows, and if its changes may be applied alongside
 * others and run no user code.
 */
extern PapplyTarget *papply_target_peek(LogicalRepRelId remote_relid, uint32 version);

/*
 * May a change run user code that does anything, such as altering other
 * tables?  If so, no other target is open, and this one is open for one change
 * only.
 */
extern bool papply_target_runs_code(const PapplyTarget *target);

/*
 * Return the target of a table that is known, in this version, to be plain
 * (insert_run.h), or NULL.
 */
extern const PapplyTarget *papply_target_plain(LogicalRepRelId remote_relid, uint32 version);

/*
 * Close the target after a change, if it is open for that change only, or has
 * many partitions open.
 */
extern void papply_target_release(PapplyTarget *target);

/*
 * Set which columns an UPDATE to this tuple updates.  Its row is in table,
 * which is target or a partition of it.  Needed if triggers fire, or if there
 * are generated columns, since only those that use an updated column are
 * computed again.
 */
extern void papply_target_set_updated(PapplyTarget *target, PapplyTarget *table,
									  const PapplyTuple *tuple);

/*
 * Return the open target of a partition of root, which is an open target.
 * Tuple routing has made result_rel, which stays open as long as root.
 */
extern PapplyTarget *papply_target_open_partition(PapplyTarget *root,
												  ResultRelInfo *result_rel);

/*
 * Use this version for the following changes of the relation that it
 * describes.  Does not open the table.
 */
extern void papply_target_use_version(uint32 version);

/*
 * Open the table of a remote relation, which must not be open, with
 * AccessExclusiveLock.  It stays open until papply_target_close_all(), and no
 * other function may be called for its target until then.
 */
extern Relation papply_target_open_to_truncate(LogicalRepRelId remote_relid);

/* Close all targets, before a commit or TRUNCATE. */
extern void papply_target_close_all(void);

/* Forget all open targets after an abort, which has released their tables. */
extern void papply_target_forget_all(void);

#endif							/* PAPPLY_TARGET_H */
