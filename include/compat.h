/*-------------------------------------------------------------------------
 * compat.h
 *	  Differences between the major versions of PostgreSQL.
 *
 * Each entry says which major version changed what.  No other file tests
 * PG_VERSION_NUM.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COMPAT_H
#define PAPPLY_COMPAT_H

#include "postgres.h"

#include "access/amapi.h"
#include "access/attmap.h"
#include "access/commit_ts.h"
#include "access/genam.h"
#include "access/nbtree.h"
#include "access/stratnum.h"
#include "access/sysattr.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_subscription_rel.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "replication/logicallauncher.h"
#include "replication/logicalproto.h"
#include "replication/origin.h"
#include "replication/slot.h"
#include "replication/syncrep.h"
#include "replication/walreceiver.h"
#include "replication/walsender_private.h"
#include "replication/worker_internal.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 180000
#include "replication/conflict.h"
#include "storage/lmgr.h"
#endif
#if PG_VERSION_NUM >= 160000
#include "parser/parse_relation.h"
#include "utils/usercontext.h"
#endif

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 200000
#error "parallel_apply supports PostgreSQL 15 to 19"
#endif

/* 18: a library has a name and a version, see pg_get_loaded_modules(). */
#if PG_VERSION_NUM >= 180000
#define PAPPLY_COMPAT_MODULE_MAGIC \
	PG_MODULE_MAGIC_EXT(.name = "parallel_apply", .version = PAPPLY_VERSION)
#else
#define PAPPLY_COMPAT_MODULE_MAGIC PG_MODULE_MAGIC
#endif

/*
 * Waits of our processes.  Those of the commit order are in the order of the
 * states of a writer.
 */
typedef enum PapplyWait
{
	PAPPLY_WAIT_WORK,
	PAPPLY_WAIT_DEPENDENCY,
	PAPPLY_WAIT_TURN,
	PAPPLY_WAIT_DATA,
	PAPPLY_WAIT_LEADER,
	PAPPLY_WAIT_POSITION,
} PapplyWait;

/* 17: extensions name their wait events; before, all are "Extension". */
static inline uint32
papply_compat_wait_event(PapplyWait wait)
{
#if PG_VERSION_NUM >= 170000
	static uint32 events[PAPPLY_WAIT_POSITION + 1];
	static const char *const names[] = {
		"ParallelApplyWork", "ParallelApplyDependency", "ParallelApplyCommitOrder",
		"ParallelApplyData", "ParallelApplyLeader", "ParallelApplyPosition"
	};

	if (events[wait] == 0)
		events[wait] = WaitEventExtensionNew(names[wait]);
	return events[wait];
#else
	return PG_WAIT_EXTENSION;
#endif
}

/*
 * 17: the set belongs to a resource owner, or to none, instead of a memory
 * context.
 */
static inline WaitEventSet *
papply_compat_create_wait_event_set(int nevents)
{
#if PG_VERSION_NUM >= 170000
	return CreateWaitEventSet(NULL, nevents);
#else
	return CreateWaitEventSet(TopMemoryContext, nevents);
#endif
}

/*
 * Return the PGconn of a connection.  Its declaration is private to
 * libpqwalreceiver.c; in all versions it is the first field.
 */
static inline void *
papply_compat_pgconn(WalReceiverConn *conn)
{
	return *(void **) conn;
}

/* Does this process sleep in the lock manager?  Unlocked, a hint. */
static inline bool
papply_compat_proc_waits_for_lock(PGPROC *proc)
{
	return proc->waitStatus == PROC_WAIT_STATUS_WAITING;
}

/*
 * Does this process hold the lock in this mode?  17: one argument more.
 */
static inline bool
papply_compat_holds_lock(const LOCKTAG *tag, LOCKMODE mode)
{
#if PG_VERSION_NUM >= 170000
	return LockHeldByMe(tag, mode, false);
#else
	return LockHeldByMe(tag, mode);
#endif
}

/*
 * Return the next lock that a process holds or waits for in a partition of the
 * lock table, or the next process that waits for a lock.  NULL as the last
 * argument means the first one.  Returns NULL if there is none.  The caller
 * holds the lock of the partition.  16: lists of another kind; 19: a link of
 * its own.
 */
static inline PROCLOCK *
papply_compat_next_proclock(PGPROC *proc, int partition, PROCLOCK *before)
{
#if PG_VERSION_NUM >= 160000
	dlist_head *list = &proc->myProcLocks[partition];

	if (before == NULL ? dlist_is_empty(list) : !dlist_has_next(list, &before->procLink))
		return NULL;
	return dlist_container(PROCLOCK, procLink,
						   before == NULL ? dlist_head_node(list) :
						   dlist_next_node(list, &before->procLink));
#else
	SHM_QUEUE  *list = &proc->myProcLocks[partition];

	return (PROCLOCK *) SHMQueueNext(list, before == NULL ? list : &before->procLink,
									 offsetof(PROCLOCK, procLink));
#endif
}

/*
 * Return all settings of the session and their number.  16: they are in a hash
 * table, and the array is a copy.
 */
static inline struct config_generic **
papply_compat_settings(int *count)
{
#if PG_VERSION_NUM >= 160000
	return get_guc_variables(count);
#else
	*count = GetNumConfigOptions();
	return get_guc_variables();
#endif
}

static inline void
papply_compat_free_settings(struct config_generic **settings)
{
#if PG_VERSION_NUM >= 160000
	pfree(settings);
#endif
}

#if PG_VERSION_NUM >= 190000
#define PAPPLY_WAIT_LINK waitLink
#else
#define PAPPLY_WAIT_LINK links
#endif

static inline PGPROC *
papply_compat_next_waiter(LOCK *lock, PGPROC *before)
{
#if PG_VERSION_NUM >= 160000
	dclist_head *list = &lock->waitProcs;

	if (before == NULL ? dclist_is_empty(list) :
		!dclist_has_next(list, &before->PAPPLY_WAIT_LINK))
		return NULL;
	return dlist_container(PGPROC, PAPPLY_WAIT_LINK,
						   before == NULL ? dclist_head_node(list) :
						   dclist_next_node(list, &before->PAPPLY_WAIT_LINK));
#else
	SHM_QUEUE  *list = &lock->waitProcs.links;

	return (PGPROC *) SHMQueueNext(list, before == NULL ? list : &before->links,
								   offsetof(PGPROC, links));
#endif
}

/*
 * Is this process in wait_for_relation_state_change(), which waits for a
 * synchronization worker?  Unlocked, a hint.
 */
static inline bool
papply_compat_waits_for_sync_worker(PGPROC *proc)
{
	return proc != NULL && proc->wait_event_info == WAIT_EVENT_LOGICAL_SYNC_STATE_CHANGE;
}

/* Return the pids of the synchronization workers of a subscription. */
static inline List *
papply_compat_find_sync_workers(Oid subid)
{
	List	   *workers;
	List	   *pids = NIL;
	ListCell   *lc;

#if PG_VERSION_NUM >= 180000
	workers = logicalrep_workers_find(subid, true, true);
#else
	LWLockAcquire(LogicalRepWorkerLock, LW_SHARED);
	workers = logicalrep_workers_find(subid, true);
	LWLockRelease(LogicalRepWorkerLock);
#endif
	foreach(lc, workers)
	{
		LogicalRepWorker *worker = (LogicalRepWorker *) lfirst(lc);
		PGPROC	   *proc = worker->proc;

		if (OidIsValid(worker->relid) && proc != NULL && proc->pid != 0)
			pids = lappend_int(pids, proc->pid);
	}
	list_free(workers);
	return pids;
}

/* Does the leader apply worker of this subscription run? */
static inline bool
papply_compat_apply_worker_runs(Oid subid)
{
	bool		result;

	LWLockAcquire(LogicalRepWorkerLock, LW_SHARED);
#if PG_VERSION_NUM >= 190000
	result = logicalrep_worker_find(WORKERTYPE_APPLY, subid, InvalidOid, true) != NULL;
#else
	result = logicalrep_worker_find(subid, InvalidOid, true) != NULL;
#endif
	LWLockRelease(LogicalRepWorkerLock);
	return result;
}

/* Parameters of walrcv_connect().  16: must_use_password; 17: replication. */
#if PG_VERSION_NUM >= 170000
#define PAPPLY_CONNECT_PARAMETERS \
	const char *conninfo, bool replication, bool logical, bool must_use_password, \
	const char *appname, char **err
#define PAPPLY_CONNECT_ARGUMENTS \
	conninfo, replication, logical, must_use_password, appname, err
#elif PG_VERSION_NUM >= 160000
#define PAPPLY_CONNECT_PARAMETERS \
	const char *conninfo, bool logical, bool must_use_password, const char *appname, char **err
#define PAPPLY_CONNECT_ARGUMENTS conninfo, logical, must_use_password, appname, err
#else
#define PAPPLY_CONNECT_PARAMETERS \
	const char *conninfo, bool logical, const char *appname, char **err
#define PAPPLY_CONNECT_ARGUMENTS conninfo, logical, appname, err
#endif

/*
 * Open another connection, for SQL, to the publisher of MySubscription.
 * Returns NULL and sets *error on failure.  The caller is in a transaction.
 */
static inline WalReceiverConn *
papply_compat_connect(const WalReceiverFunctionsType *functions, const char *appname,
					  char **error)
{
#if PG_VERSION_NUM >= 160000
	bool		must_use_password = MySubscription->passwordrequired &&
	!superuser_arg(MySubscription->owner);
#endif

#if PG_VERSION_NUM >= 190000
	return (functions->walrcv_connect) (SubscriptionConninfo(MySubscription), true, true,
										must_use_password, appname, error);
#elif PG_VERSION_NUM >= 170000
	return (functions->walrcv_connect) (MySubscription->conninfo, true, true, must_use_password,
										appname, error);
#elif PG_VERSION_NUM >= 160000
	return (functions->walrcv_connect) (MySubscription->conninfo, true, must_use_password, appname,
										error);
#else
	return (functions->walrcv_connect) (MySubscription->conninfo, true, appname, error);
#endif
}

/* 16: apply workers include parallel ones; there is a test for leaders. */
static inline bool
papply_compat_am_leader_apply_worker(void)
{
#if PG_VERSION_NUM >= 160000
	return MyLogicalRepWorker != NULL && am_leader_apply_worker();
#else
	return MyLogicalRepWorker != NULL && !am_tablesync_worker();
#endif
}

/* Does this process synchronize a table? */
static inline bool
papply_compat_am_sync_worker(void)
{
	return MyLogicalRepWorker != NULL && am_tablesync_worker();
}

/*
 * 16: streamed transactions may go to the server's own parallel workers, which
 * could overtake the pool.  Request plain streaming instead.
 */
static inline void
papply_compat_forbid_parallel_streaming(WalRcvStreamOptions *options)
{
#if PG_VERSION_NUM >= 160000
	if (MyLogicalRepWorker->parallel_apply)
	{
		options->proto.logical.streaming_str = "on";
		MyLogicalRepWorker->parallel_apply = false;
	}
#endif
}

/* Request whole transactions only, instead of streamed ones. */
static inline void
papply_compat_forbid_streaming(WalRcvStreamOptions *options)
{
#if PG_VERSION_NUM >= 160000
	options->proto.logical.streaming_str = NULL;
	MyLogicalRepWorker->parallel_apply = false;
#else
	options->proto.logical.streaming = false;
#endif
}

static inline bool
papply_compat_streams_in_parallel(void)
{
#if PG_VERSION_NUM >= 160000
	return MyLogicalRepWorker->parallel_apply;
#else
	return false;
#endif
}

/* Does the subscription request parallel streaming? */
static inline bool
papply_compat_wants_parallel_streaming(void)
{
#if PG_VERSION_NUM >= 160000
	return MySubscription->stream == LOGICALREP_STREAM_PARALLEL;
#else
	return false;
#endif
}

/*
 * 19: with retain_dead_tuples the apply worker tracks what it applies itself.
 * Such subscriptions stay native.
 */
static inline bool
papply_compat_subscription_is_native(void)
{
#if PG_VERSION_NUM >= 190000
	return MySubscription->retaindeadtuples;
#else
	return false;
#endif
}

/*
 * The replication origin.  Up to 15 one process at a time can own its session,
 * so it is passed on: writers own it in their turn, the receiver owns it
 * during a fallback.  Since 16 writers share the leader's session.  19:
 * three variables became one struct, and the type has another name.
 */
#if PG_VERSION_NUM >= 190000
typedef ReplOriginId PapplyOriginId;
#define PAPPLY_NO_ORIGIN InvalidReplOriginId
#define PAPPLY_SESSION_ORIGIN (replorigin_xact_state.origin)
#define PAPPLY_SESSION_ORIGIN_LSN (replorigin_xact_state.origin_lsn)
#define PAPPLY_SESSION_ORIGIN_TIMESTAMP (replorigin_xact_state.origin_timestamp)
#else
typedef RepOriginId PapplyOriginId;
#define PAPPLY_NO_ORIGIN InvalidRepOriginId
#define PAPPLY_SESSION_ORIGIN replorigin_session_origin
#define PAPPLY_SESSION_ORIGIN_LSN replorigin_session_origin_lsn
#define PAPPLY_SESSION_ORIGIN_TIMESTAMP replorigin_session_origin_timestamp
#endif

#define PAPPLY_ORIGIN_IS_SHARED (PG_VERSION_NUM >= 160000)

/*
 * Take the session of an origin that no other process uses.  A leader_pid that
 * is not 0 means sharing the session of that process (since 16).
 */
static inline void
papply_compat_origin_setup(PapplyOriginId origin, int leader_pid)
{
#if PG_VERSION_NUM >= 160000
	replorigin_session_setup(origin, leader_pid);
#else
	replorigin_session_setup(origin);
#endif
}

/*
 * At the end of a process: release the session.  Processes that shared it have
 * exited.
 */
static inline void
papply_compat_origin_release(void)
{
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
	replorigin_session_reset();
}

/*
 * Walsender: does any backend wait until a synchronous standby has flushed?
 * Unlocked, a hint.
 */
static inline bool
papply_compat_flush_is_awaited(void)
{
#if PG_VERSION_NUM >= 160000
	return !dlist_is_empty(&WalSndCtl->SyncRepQueue[SYNC_REP_WAIT_FLUSH]);
#else
	return !SHMQueueEmpty(&WalSndCtl->SyncRepQueue[SYNC_REP_WAIT_FLUSH]);
#endif
}

/* 16: the rows of a relation are searched with the privileges of its owner. */
#if PG_VERSION_NUM >= 160000
typedef UserContext PapplyUserContext;
#else
typedef int PapplyUserContext;
#endif

static inline void
papply_compat_begin_as_table_owner(Relation rel, PapplyUserContext *context)
{
#if PG_VERSION_NUM >= 160000
	if (!MySubscription->runasowner)
		SwitchToUntrustedUser(rel->rd_rel->relowner, context);
#endif
}

static inline void
papply_compat_end_as_table_owner(PapplyUserContext *context)
{
#if PG_VERSION_NUM >= 160000
	if (!MySubscription->runasowner)
		RestoreUserContext(context);
#endif
}

/*
 * Initialize a range table with the one relation that changes are applied to.
 * The columns in updated_columns (attribute numbers less
 * FirstLowInvalidHeapAttributeNumber) count as updated.  16: permissions have a
 * node of their own; 18: the set of relations is needed too.
 */
static inline void
papply_compat_init_range_table(EState *estate, RangeTblEntry *rte,
							   Bitmapset *updated_columns)
{
#if PG_VERSION_NUM >= 160000
	List	   *perminfos = NIL;

	addRTEPermissionInfo(&perminfos, rte)->updatedCols = updated_columns;
#if PG_VERSION_NUM >= 180000
	ExecInitRangeTable(estate, list_make1(rte), perminfos, bms_make_singleton(1));
#else
	ExecInitRangeTable(estate, list_make1(rte), perminfos);
#endif
#else
	rte->updatedCols = updated_columns;
	ExecInitRangeTable(estate, list_make1(rte));
#endif
}

/* Set the columns that the current change updates.  16: see above. */
static inline void
papply_compat_set_updated_columns(EState *estate, Bitmapset *updated_columns)
{
#if PG_VERSION_NUM >= 160000
	((RTEPermissionInfo *) linitial(estate->es_rteperminfos))->updatedCols = updated_columns;
#else
	((RangeTblEntry *) linitial(estate->es_range_table))->updatedCols = updated_columns;
#endif
}

/* 16: needs the result relations for row locks. */
static inline void
papply_compat_init_eval_plan_qual(EPQState *epqstate, EState *estate)
{
#if PG_VERSION_NUM >= 160000
	EvalPlanQualInit(epqstate, estate, NULL, NIL, -1, NIL);
#else
	EvalPlanQualInit(epqstate, estate, NULL, NIL, -1);
#endif
}

/*
 * Does a function of the server call the input function of a type whose name
 * it gets as text?  16: there are such functions.
 */
static inline bool
papply_compat_takes_type_name(Oid function)
{
#if PG_VERSION_NUM >= 160000
	return function == F_PG_INPUT_IS_VALID || function == F_PG_INPUT_ERROR_INFO;
#else
	return false;
#endif
}

/* 19: there is such a type. */
#if PG_VERSION_NUM < 190000
#define REGDATABASEOID InvalidOid
#endif

/*
 * Is it a function such as JSON_VALUE, which converts its result to its own
 * type?  17: there are such nodes.
 */
static inline bool
papply_compat_is_json_expr(Node *node)
{
#if PG_VERSION_NUM >= 170000
	return IsA(node, JsonExpr);
#else
	return false;
#endif
}

/* 18: instrumentation; 19: flags. */
static inline IndexScanDesc
papply_compat_index_beginscan(Relation rel, Relation index, Snapshot snapshot, int nkeys)
{
#if PG_VERSION_NUM >= 190000
	return index_beginscan(rel, index, snapshot, NULL, nkeys, 0, 0);
#elif PG_VERSION_NUM >= 180000
	return index_beginscan(rel, index, snapshot, NULL, nkeys, 0);
#else
	return index_beginscan(rel, index, snapshot, nkeys, 0);
#endif
}

/*
 * Return the index that identifies rows of the relation, or InvalidOid.  16:
 * there is one function for that.
 */
static inline Oid
papply_compat_identity_index(Relation rel)
{
#if PG_VERSION_NUM >= 160000
	return GetRelationIdentityOrPK(rel);
#else
	Oid			index = RelationGetReplicaIndex(rel);

	return OidIsValid(index) ? index : RelationGetPrimaryKeyIndex(rel);
#endif
}

/*
 * 18: pg_attribute_noreturn() became pg_noreturn, placed before a declaration.
 */
#if PG_VERSION_NUM >= 180000
#define PAPPLY_NORETURN pg_noreturn
#else
#define PAPPLY_NORETURN pg_attribute_noreturn()
#endif

/*
 * Parameters of signal handlers, which pass them to die().  19: details of the
 * signal.
 */
#if PG_VERSION_NUM >= 190000
#define PAPPLY_SIGNAL_ARGS postgres_signal_arg, pg_siginfo
#else
#define PAPPLY_SIGNAL_ARGS postgres_signal_arg
#endif

/* 19: the second half of an LSN has leading zeros. */
#if PG_VERSION_NUM >= 190000
#define PAPPLY_LSN_FORMAT "%X/%08X"
#define PAPPLY_LSN_MIN_DIGITS 8
#else
#define PAPPLY_LSN_FORMAT "%X/%X"
#define PAPPLY_LSN_MIN_DIGITS 1
#endif

/*
 * 18: the server reports conflicts, with its own messages and counters.  A row
 * writer is the transaction that wrote a row, as known from commit timestamps
 * (track_commit_timestamp).
 */
#define PAPPLY_REPORTS_CONFLICTS (PG_VERSION_NUM >= 180000)

#if PG_VERSION_NUM >= 180000
typedef ConflictTupleInfo PapplyRowWriter;
#else
typedef struct PapplyRowWriter
{
	TransactionId xmin;
	PapplyOriginId origin;
	TimestampTz ts;
} PapplyRowWriter;
#endif

/* 16: standbys can have logical slots. */
#define PAPPLY_STANDBYS_HAVE_SLOTS (PG_VERSION_NUM >= 160000)

/* 16: a walsender shows whether it serves a standby. */
static inline bool
papply_compat_walsender_is_physical(const WalSnd *walsender)
{
#if PG_VERSION_NUM >= 160000
	return walsender->kind == REPLICATION_KIND_PHYSICAL;
#else
	return false;
#endif
}

/*
 * Return the process that uses a slot, or 0, without a lock.  19: the slot has
 * its number.
 */
static inline int
papply_compat_slot_pid(const volatile ReplicationSlot *slot)
{
#if PG_VERSION_NUM >= 190000
	ProcNumber	number = slot->active_proc;

	return number == INVALID_PROC_NUMBER ? 0 : GetPGProcByNumber(number)->pid;
#else
	return slot->active_pid;
#endif
}

/*
 * Return the place of a process in the server's array of backend statuses.  17:
 * it is that of its PGPROC.
 */
static inline int
papply_compat_status_index(const PGPROC *process)
{
#if PG_VERSION_NUM >= 170000
	return GetNumberFromPGProc(process);
#else
	return process->backendId - 1;
#endif
}

/*
 * 19: with wal_level "replica", WAL has logical information while there is a
 * slot.
 */
static inline bool
papply_compat_wal_is_never_logical(void)
{
#if PG_VERSION_NUM >= 190000
	return wal_level < WAL_LEVEL_REPLICA;
#else
	return !XLogLogicalInfoActive();
#endif
}

/*
 * Truncate these open tables, without cascading.  16: privileges of the table owner or not.
 */
static inline void
papply_compat_truncate(List *rels, bool restart_sequences)
{
	List	   *relids = NIL;
	List	   *logged = NIL;	/* those that are decoded here, too */
	ListCell   *lc;

	foreach(lc, rels)
	{
		Relation	rel = lfirst(lc);

		relids = lappend_oid(relids, RelationGetRelid(rel));
		if (RelationIsLogicallyLogged(rel))
			logged = lappend_oid(logged, RelationGetRelid(rel));
	}
#if PG_VERSION_NUM >= 160000
	ExecuteTruncateGuts(rels, relids, logged, DROP_RESTRICT, restart_sequences,
						!MySubscription->runasowner);
#else
	ExecuteTruncateGuts(rels, relids, logged, DROP_RESTRICT, restart_sequences);
#endif
}

/* Was the row written by an origin other than that of our transaction? */
static inline bool
papply_compat_row_has_other_origin(TupleTableSlot *row, PapplyRowWriter *writer)
{
	bool		is_null;

	if (!track_commit_timestamp)
		return false;
	writer->xmin = DatumGetTransactionId(slot_getsysattr(row, MinTransactionIdAttributeNumber,
														 &is_null));
	return TransactionIdGetCommitTsData(writer->xmin, &writer->ts, &writer->origin) &&
		writer->origin != PAPPLY_SESSION_ORIGIN;
}

/*
 * Report the conflict of an UPDATE or DELETE.  local is NULL if there is no
 * row.
 */
static inline void
papply_compat_report_conflict(EState *estate, ResultRelInfo *result_rel,
							  char message_type, TupleTableSlot *searched, TupleTableSlot *local,
							  TupleTableSlot *remote, PapplyRowWriter *writer)
{
#if PG_VERSION_NUM >= 180000
	bool		is_update = message_type == LOGICAL_REP_MSG_UPDATE;
	ConflictType type = is_update ? CT_UPDATE_MISSING : CT_DELETE_MISSING;
	Oid			identity = GetRelationIdentityOrPK(result_rel->ri_RelationDesc);

	if (local != NULL)
		type = is_update ? CT_UPDATE_ORIGIN_DIFFERS : CT_DELETE_ORIGIN_DIFFERS;
	if (OidIsValid(identity))
		LockRelationOid(identity, RowExclusiveLock);
	writer->slot = local;
	ReportApplyConflict(estate, result_rel, LOG, type, searched, remote,
						list_make1(writer));
#endif
}

/*
 * Does the user own a relation, extension or subscription?  16: one function
 * for all kinds of objects.
 */
static inline bool
papply_compat_is_owner(Oid class_id, Oid object_id)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(class_id, object_id, GetUserId());
#else
	return class_id == RelationRelationId ? pg_class_ownercheck(object_id, GetUserId()) :
		class_id == ExtensionRelationId ? pg_extension_ownercheck(object_id, GetUserId()) :
		pg_subscription_ownercheck(object_id, GetUserId());
#endif
}

/*
 * Set the latch of a leader apply worker, if it exists.  19: workers have a
 * type.
 */
static inline void
papply_compat_wake_leader(Oid subid)
{
#if PG_VERSION_NUM >= 190000
	logicalrep_worker_wakeup(WORKERTYPE_APPLY, subid, InvalidOid);
#else
	logicalrep_worker_wakeup(subid, InvalidOid);
#endif
}

/*
 * Let the launcher start the apply worker of this subscription again without
 * waiting for wal_retrieve_retry_interval, when the current transaction has
 * committed.  15: it waits, because it remembers one start for all subscriptions.
 */
static inline void
papply_compat_start_leader_at_commit(Oid subid)
{
#if PG_VERSION_NUM >= 160000
	ApplyLauncherForgetWorkerStartTime(subid);
#endif
	ApplyLauncherWakeupAtCommit();
}

/*
 * End the leader apply worker of a subscription, or the worker that synchronizes a table of
 * it, and wait until it has exited; do nothing if there is none.  19: workers have a type.
 */
static inline void
papply_compat_stop_leader(Oid subid)
{
#if PG_VERSION_NUM >= 190000
	logicalrep_worker_stop(WORKERTYPE_APPLY, subid, InvalidOid);
#else
	logicalrep_worker_stop(subid, InvalidOid);
#endif
}

static inline void
papply_compat_stop_sync_worker(Oid subid, Oid relid)
{
#if PG_VERSION_NUM >= 190000
	logicalrep_worker_stop(WORKERTYPE_TABLESYNC, subid, relid);
#else
	logicalrep_worker_stop(subid, relid);
#endif
}

/* Set the state of a table in pg_subscription_rel.  18: the caller may have locked both. */
static inline void
papply_compat_set_table_state(Oid subid, Oid relid, char state, XLogRecPtr lsn)
{
#if PG_VERSION_NUM >= 180000
	UpdateSubscriptionRelState(subid, relid, state, lsn, false);
#else
	UpdateSubscriptionRelState(subid, relid, state, lsn);
#endif
}

/*
 * 15: a ResultRelInfo has one state of generated columns, for INSERT or for
 * UPDATE.  Later versions have two.
 */
#define PAPPLY_SHARES_GENERATED (PG_VERSION_NUM < 160000)

/* Forget which generated columns an UPDATE computes. */
static inline void
papply_compat_forget_generated(ResultRelInfo *result_rel)
{
#if PG_VERSION_NUM >= 160000
	result_rel->ri_GeneratedExprsU = NULL;
	result_rel->ri_NumGeneratedNeededU = 0;
	result_rel->ri_extraUpdatedCols = NULL;
#if PG_VERSION_NUM >= 180000
	result_rel->ri_extraUpdatedCols_valid = false;
#endif
#else
	result_rel->ri_GeneratedExprs = NULL;
	result_rel->ri_NumGeneratedNeeded = 0;
#endif
}

/*
 * Return the column of in with the same name for each column of out, or NULL
 * if rows need no conversion.  16: a flag allows missing columns.
 */
static inline AttrMap *
papply_compat_map_columns(TupleDesc in, TupleDesc out)
{
#if PG_VERSION_NUM >= 160000
	return build_attrmap_by_name_if_req(in, out, false);
#else
	return build_attrmap_by_name_if_req(in, out);
#endif
}

/*
 * Insert the index entries of a new row, like the executor.  Deferred
 * constraints are checked by triggers, which do not fire in replica mode.  16:
 * only_summarizing; 19: flags.
 */
static inline void
papply_compat_insert_index_tuples(ResultRelInfo *result_rel, TupleTableSlot *row,
								  EState *estate)
{
#if PG_VERSION_NUM >= 190000
	List	   *to_recheck = ExecInsertIndexTuples(result_rel, estate, 0, row, NIL, NULL);
#elif PG_VERSION_NUM >= 160000
	List	   *to_recheck = ExecInsertIndexTuples(result_rel, row, estate, false, false,
												   NULL, NIL, false);
#else
	List	   *to_recheck = ExecInsertIndexTuples(result_rel, row, estate, false, false,
												   NULL, NIL);
#endif

	list_free(to_recheck);
}

/*
 * Return the equality strategy for a column of an index that may be an
 * identity.  18: includes GiST (WITHOUT OVERLAPS), whose strategies depend on
 * the operator class.
 */
static inline StrategyNumber
papply_compat_equality_strategy(Relation index, int column)
{
#if PG_VERSION_NUM >= 180000
	return IndexAmTranslateCompareType(COMPARE_EQ, index->rd_rel->relam,
									   index->rd_opfamily[column], true);
#else
	return index->rd_rel->relam == HASH_AM_OID ? HTEqualStrategyNumber : BTEqualStrategyNumber;
#endif
}

/*
 * Return the root page of a btree, pinned and locked, or InvalidBuffer.  16:
 * needs the table too.
 */
static inline Buffer
papply_compat_btree_root(Relation index, Relation rel)
{
#if PG_VERSION_NUM >= 160000
	return _bt_getroot(index, rel, BT_READ);
#else
	return _bt_getroot(index, BT_READ);
#endif
}

#endif							/* PAPPLY_COMPAT_H */
