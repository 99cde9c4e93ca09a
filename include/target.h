/*-------------------------------------------------------------------------
 * room: writer
 *
 * target.h
 *	  The local table that changes of a remote relation are applied to.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TARGET_H
#define PAPPLY_TARGET_H

#include "access/skey.h"
#include "executor/executor.h"
#include "replication/logicalrelation.h"
#include "utils/snapshot.h"

#include "fast_input.h"
#include "kept_functions.h"
#include "message.h"
#include "table_class.h"
#include "table_statistics.h"

/* How a published column becomes a value of a local one. */
typedef struct PapplyColumnInput
{
	int			column;			/* number in the message, -1: not published */
	bool		is_key;			/* of the identity */
	bool		is_text;		/* its values are what was sent, as text */
	Oid			text_param;
	Oid			binary_param;
	FmgrInfo	text_function;
	PapplyFastInput fast_input; /* in its place, where possible; or NULL */
	FmgrInfo	binary_function;	/* fn_oid 0: not looked up yet */
} PapplyColumnInput;

/* How a row is found by an index. */
typedef struct PapplyIndexKeys
{
	Oid			index;			/* InvalidOid: by the server's sequential scan */
	bool		is_identity;	/* else whole rows are compared */
	bool		finds_nulls;
	bool		is_btree;		/* its pages can be looked for:
								 * index_descent.h */
	FmgrInfo   *equality;		/* how: one for each column, fn_oid 0: not */
	int			count;			/* of key columns that are searched for */
	AttrNumber	attnums[INDEX_MAX_KEYS];
	ScanKeyData keys[INDEX_MAX_KEYS];
} PapplyIndexKeys;

/* The table that has the name of a remote relation, or a partition of it. */
typedef struct PapplyTargetKey
{
	LogicalRepRelId remote_relid;
	Oid			partition;		/* InvalidOid: the table itself */
} PapplyTargetKey;

typedef struct PapplyTarget
{
	PapplyTargetKey key;

	/* not of partitions */
	uint32		version;		/* of the remote definition */
	LogicalRepRelMapEntry *entry;	/* of the server's map */
	uint32		state_counter;	/* when entry's sync state was read */
	bool		has_domain_default; /* table_class.h */
	bool		may_check_domain;	/* the same */
	char	   *label;			/* "schema.table" of the publisher */

	uint32		range_number;	/* that has opened it; 0: none */

	/* kept across transactions, until an invalidation */
	bool		is_valid;
	Oid			userid;			/* who may call its functions */
	PapplyKeptFunctions functions;
	Oid			local_relid;
	bool		is_partitioned;
	bool		is_partition;
	MemoryContext context;		/* of what follows */
	PapplyColumnInput *inputs;	/* one for each local column */
	int			ndefaults;
	int		   *default_columns;
	ExprState **default_exprs;
	bool		has_mutable_default;	/* the time of the transaction, say */
	bool		is_updatable;	/* the publisher tells how to find rows */
	PapplyIndexKeys lookup;
	AttrMap    *from_root;		/* of a partition; NULL: the same columns */
	AttrMap    *to_root;
	PapplyTableClass table_class;
	PapplyClassReason reason;	/* why not parallel */
	bool		has_triggers;	/* that fire in replica mode */
	bool		takes_runs;		/* of INSERTs; see insert_run.c */
	struct PapplyRunRows *run_rows;

	/* count.c; not of partitions */
	uint64		counts[PAPPLY_TABLE_COUNTERS];	/* not yet added */
	bool		is_counted;		/* some are not 0 */
	struct PapplyTarget *next_counted;
	PapplyTableHint hint;

	/* within a local transaction */
	bool		is_open;
	struct PapplyTarget *next_open;
	Relation	rel;
	struct PapplyRouting *routing;	/* of a partitioned table, else NULL */
	int			open_partitions;
	Oid			root_relid;		/* its own, or of its root */
	AclMode		allowed;		/* rights.c: rights that were there */
	uint32		allowed_at;
	EState	   *estate;			/* partitions have that of their root */
	ResultRelInfo *insert_rel;
	ResultRelInfo *update_rel;	/* the same, where it may be */
	TupleTableSlot *remote_slot;	/* the root's, if it has the same columns */
	TupleTableSlot *local_slot;
	EPQState	epqstate;
	Relation	index_rel;		/* of lookup, when it was used */
	IndexScanDesc index_scan;
	MemoryContext scan_context; /* its own, while there is one */
	SnapshotData dirty_snapshot;
} PapplyTarget;

/* Once in a writer, connected. */
extern void papply_target_init(void);

/* A range of transactions begins. */
extern void papply_target_begin_range(void);

/*
 * Are all tables synchronised that have been opened since then, as they were, and the
 * functions that they call what they were, as far as invalidations have been accepted?
 * In a transaction, if any was opened.
 */
extern bool papply_target_range_is_current(void);

/*
 * The target of a remote relation, open until the local transaction ends or
 * papply_target_release(); pg_stat_activity shows it.  Throws if changes to it
 * cannot be applied by a writer, or not now: those of class serial only if
 * is_alone is set.
 */
extern PapplyTarget *papply_target_open(LogicalRepRelId remote_relid, uint32 version,
										bool is_alone);

/*
 * The target of a remote relation, open or not, if rows of it are found by an
 * index that is their identity, and it is ready for changes made with that version, which may be applied
 * beside others and run no code of the user; else NULL.
 */
extern PapplyTarget *papply_target_peek(LogicalRepRelId remote_relid, uint32 version);

/*
 * May a change run code of the user that does anything, such as to alter other
 * tables?  Then no other target is open, and this one is open for one change
 * only.
 */
extern bool papply_target_runs_code(const PapplyTarget *target);

/* May triggers fire when a row is changed?  Any may if this transaction has said so. */
extern bool papply_target_fires_triggers(const PapplyTarget *target);

/* Are INSERTs into the table put off (insert_run.h)? */
extern bool papply_target_takes_runs(const PapplyTarget *target);

/*
 * The target of a table that is known, in that definition, as one without code that could
 * tell in which order rows are changed; else NULL.  Partitions may have constraints that
 * could, as the README says of constraints that read other rows.
 */
extern const PapplyTarget *papply_target_plain(LogicalRepRelId remote_relid, uint32 version);

/* After a change: close the target if it is for that change only, or has much open. */
extern void papply_target_release(PapplyTarget *target);

/* Before an UPDATE that sets these columns: for triggers that look at it. */
extern void papply_target_set_updated(PapplyTarget *target, const PapplyTuple *tuple);

/*
 * The same for a partition of root, an open target; result_rel is made by tuple
 * routing, and open as long as root.
 */
extern PapplyTarget *papply_target_open_partition(PapplyTarget *root,
												  ResultRelInfo *result_rel);

/*
 * Without opening it: changes of the relation that this version describes are
 * made with it from here on.
 */
extern void papply_target_use_version(uint32 version);

/*
 * The table of a remote relation that is not open, locked exclusively and open
 * until papply_target_close_all(); nothing else may be done with the target.
 */
extern Relation papply_target_open_to_truncate(LogicalRepRelId remote_relid);

/* For INSERT, or for UPDATE and DELETE; with its indexes open.  No root. */
extern ResultRelInfo *papply_target_insert_rel(PapplyTarget *target);
extern ResultRelInfo *papply_target_update_rel(PapplyTarget *target);

/* Before a commit, or a TRUNCATE: release everything that is open. */
extern void papply_target_close_all(void);

/* After an abort, which has released it: forget it. */
extern void papply_target_forget_all(void);

#endif							/* PAPPLY_TARGET_H */
