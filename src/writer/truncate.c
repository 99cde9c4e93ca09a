/*-------------------------------------------------------------------------
 * truncate.c
 *	  TRUNCATE of the publisher, applied by a writer.
 *
 * Runs in a writer, when everything older is committed; everything younger
 * waits for it.  The rows that it removes are not known beforehand, and
 * triggers may fire.
 *
 * It does what the core apply loop does: it truncates the tables of the
 * message in one command, with the partitions that they have on this server.
 * It never cascades to other tables, even if the publisher did.  It uses the
 * rights of the subscription's owner.  If the core apply loop would leave out
 * a table because it is not synchronized yet, the transaction is left to the
 * core apply loop.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "rights.h"
#include "target.h"
#include "truncate.h"

/* The tables to truncate. */
typedef struct TruncateTables
{
	List	   *rels;
	List	   *relids;
	List	   *logged;			/* OIDs of those that are decoded here, too */
	List	   *partitions;		/* those of rels that this file must close */
} TruncateTables;

static void
add_table(TruncateTables *tables, Relation rel)
{
	papply_rights_check_relation(rel, ACL_TRUNCATE);
	tables->rels = lappend(tables->rels, rel);
	tables->relids = lappend_oid(tables->relids, RelationGetRelid(rel));
	if (RelationIsLogicallyLogged(rel))
		tables->logged = lappend_oid(tables->logged, RelationGetRelid(rel));
}

static void
add_partitions(TruncateTables *tables, Relation root)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(RelationGetRelid(root), AccessExclusiveLock, NULL))
	{
		Relation	rel;

		if (list_member_oid(tables->relids, lfirst_oid(lc)))
			continue;
		rel = table_open(lfirst_oid(lc), NoLock);
		add_table(tables, rel);
		tables->partitions = lappend(tables->partitions, rel);
	}
}

void
papply_truncate(char *message, int length)
{
	TruncateTables tables = {0};
	bool		cascade;
	bool		restart_sequences;
	ListCell   *lc;

	papply_target_close_all();
	SetCurrentStatementStartTimestamp();
	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, papply_message_read_truncate(message, length, &cascade, &restart_sequences))
	{
		Relation	rel = papply_target_open_to_truncate(lfirst_oid(lc));

		add_table(&tables, rel);
		if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
			add_partitions(&tables, rel);
	}
	papply_compat_truncate(tables.rels, tables.relids, tables.logged, restart_sequences);
	foreach(lc, tables.partitions)
		table_close(lfirst(lc), NoLock);
	papply_target_close_all();
	PopActiveSnapshot();
}
