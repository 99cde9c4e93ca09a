/*-------------------------------------------------------------------------
 * table_copy.c
 *	  Have the copy of a table replace its rows.
 *
 * Runs in a worker that synchronizes a table.
 *
 * resync_table() has a table copied again by the server's own table synchronization, which
 * inserts what the publisher sends, in one transaction.  The rows that were there are
 * removed in the same transaction, so other sessions see either the old rows or
 * the new ones, and a copy that fails leaves the old ones in place.  What the worker is
 * holds for the removal as well: it has the origin of the synchronization, so a server that
 * omits what has an origin does not get it, and ordinary triggers and foreign keys do
 * nothing.
 *
 * The alternative, to remove the rows in resync_table(), would leave the table empty until
 * the copy has ended, and for good if that fails.
 *
 * Which tables these are is stored in pg_subscription_rel, as a position that the server
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

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_subscription_rel.h"
#include "executor/spi.h"
#include "replication/worker_internal.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "table_copy.h"

static bool replaces_rows = false;

/* Keep the mark in a transaction that has removed it, unless that has copied the table. */
static void
keep_mark(XactEvent event, void *arg)
{
	XLogRecPtr	lsn;

	if (event != XACT_EVENT_PRE_COMMIT || !replaces_rows)
		return;
	CommandCounterIncrement();	/* to see the state that it has set */
	if (GetSubscriptionRelState(MyLogicalRepWorker->subid, MyLogicalRepWorker->relid, &lsn) ==
		SUBREL_STATE_DATASYNC && lsn != PAPPLY_TABLE_COPY_REPLACES)
		papply_compat_set_table_state(MyLogicalRepWorker->subid, MyLogicalRepWorker->relid,
									  SUBREL_STATE_DATASYNC, PAPPLY_TABLE_COPY_REPLACES);
}

/* The server has read the state of the table into MyLogicalRepWorker just before. */
void
papply_table_copy_begin(void)
{
	if (replaces_rows || !papply_compat_am_sync_worker() ||
		MyLogicalRepWorker->relstate_lsn != PAPPLY_TABLE_COPY_REPLACES)
		return;
	Assert(MyLogicalRepWorker->relstate == SUBREL_STATE_INIT ||
		   MyLogicalRepWorker->relstate == SUBREL_STATE_DATASYNC);
	replaces_rows = true;
	RegisterXactCallback(keep_mark, NULL);
}

void
papply_table_copy_started(void)
{
	Oid			relid = MyLogicalRepWorker->relid;
	const char *name;

	if (!replaces_rows)
		return;
	replaces_rows = false;

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
