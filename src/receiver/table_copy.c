/*-------------------------------------------------------------------------
 * table_copy.c
 *	  Have the copy of a table replace its rows.
 *
 * Runs in a worker that synchronizes a table.
 *
 * resync_table() has a table copied again by the server's own table synchronization, which
 * inserts what the publisher sends, in one transaction.  The rows that were there are
 * removed in the same transaction, so other sessions see either the old rows or
 * the new ones, and a copy that fails leaves the old ones in place.  If they are truncated,
 * other sessions wait for the end of the copy instead of reading the old rows.  What the worker is
 * holds for the removal as well: it has the origin of the synchronization, so a server that
 * omits what has an origin does not get it, and ordinary triggers and foreign keys do
 * nothing.
 *
 * The alternative, to remove the rows in resync_table(), would leave the table empty until
 * the copy has ended, and for good if that fails.
 *
 * Which tables these are is stored in pg_subscription_rel, as positions that the server
 * does not use in the states before the end of the copy.  So it is crash safe, reaches
 * standbys, and disappears with the table or the subscription.  Before it copies, the
 * server sets another state, without a position, in a transaction of its own.  The mark is
 * put back in this very transaction.  The transaction of the copy removes it.
 *
 * The rows are removed when COPY has begun on the publisher, since the walsender would be
 * idle in its transaction before that, and might be ended by a timeout.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_subscription_rel.h"
#include "executor/spi.h"
#include "replication/worker_internal.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "table_copy.h"

/* of the table that is to be copied; InvalidXLogRecPtr: its rows are not to be removed */
static XLogRecPtr mark = InvalidXLogRecPtr;

/* Keep the mark in a transaction that has removed it, unless that has copied the table. */
static void
keep_mark(XactEvent event, void *arg)
{
	XLogRecPtr	lsn;

	if (event != XACT_EVENT_PRE_COMMIT || XLogRecPtrIsInvalid(mark))
		return;
	CommandCounterIncrement();	/* to see the state that it has set */
	if (GetSubscriptionRelState(MyLogicalRepWorker->subid, MyLogicalRepWorker->relid, &lsn) ==
		SUBREL_STATE_DATASYNC && lsn != mark)
		papply_compat_set_table_state(MyLogicalRepWorker->subid, MyLogicalRepWorker->relid,
									  SUBREL_STATE_DATASYNC, mark);
}

/* The server has read the state of the table into MyLogicalRepWorker just before. */
void
papply_table_copy_begin(void)
{
	XLogRecPtr	lsn;

	if (!XLogRecPtrIsInvalid(mark) || !papply_compat_am_sync_worker())
		return;
	lsn = MyLogicalRepWorker->relstate_lsn;
	if (lsn != PAPPLY_TABLE_COPY_REPLACES && lsn != PAPPLY_TABLE_COPY_TRUNCATES)
		return;
	Assert(MyLogicalRepWorker->relstate == SUBREL_STATE_INIT ||
		   MyLogicalRepWorker->relstate == SUBREL_STATE_DATASYNC);
	mark = lsn;
	RegisterXactCallback(keep_mark, NULL);
}

/* With its partitions.  The server has opened the table, so the command is refused. */
static void
truncate_table(Oid relid)
{
	List	   *rels = NIL;
	ListCell   *lc;

	LockRelationOid(relid, AccessExclusiveLock);
	foreach(lc, get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ?
			find_all_inheritors(relid, AccessExclusiveLock, NULL) : list_make1_oid(relid))
	{
		Oid			member = lfirst_oid(lc);
		AclResult	acl_result = pg_class_aclcheck(member, GetUserId(), ACL_TRUNCATE);

		if (acl_result != ACLCHECK_OK)
			aclcheck_error(acl_result, get_relkind_objtype(get_rel_relkind(member)),
						   get_rel_name(member));
		rels = lappend(rels, table_open(member, NoLock));
	}
	papply_compat_truncate(rels, false);
	foreach(lc, rels)
		table_close(lfirst(lc), NoLock);
}

static void
delete_rows(Oid relid)
{
	const char *name;

	/* what inherits from an ordinary table is published by itself */
	name = psprintf("%s%s", get_rel_relkind(relid) == RELKIND_PARTITIONED_TABLE ? "" : "ONLY ",
					quote_qualified_identifier(get_namespace_name(get_rel_namespace(relid)),
											   get_rel_name(relid)));
	SPI_connect();
	(void) SPI_execute(psprintf("DELETE FROM %s", name), false, 0);
	(void) SPI_execute(psprintf("SELECT FROM %s LIMIT 1", name), false, 0);
	if (SPI_processed > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("rows of table \"%s\" remain before it is copied again", get_rel_name(relid)),
				 errdetail("A trigger or rule has kept them, or a session has inserted them.")));
	SPI_finish();
}

void
papply_table_copy_started(void)
{
	if (mark == PAPPLY_TABLE_COPY_TRUNCATES)
		truncate_table(MyLogicalRepWorker->relid);
	else if (mark == PAPPLY_TABLE_COPY_REPLACES)
		delete_rows(MyLogicalRepWorker->relid);
	mark = InvalidXLogRecPtr;
}
