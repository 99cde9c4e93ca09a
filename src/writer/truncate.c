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
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "apply.h"
#include "rights.h"
#include "target.h"

static List *
add_table(List *rels, Relation rel)
{
	papply_rights_check_relation(rel, ACL_TRUNCATE);
	return lappend(rels, rel);
}

static bool
has_table(List *rels, Oid relid)
{
	ListCell   *lc;

	foreach(lc, rels)
	{
		if (RelationGetRelid((Relation) lfirst(lc)) == relid)
			return true;
	}
	return false;
}

/* Add those that are not among the tables, opened here, to both lists. */
static List *
add_partitions(List *rels, List **partitions, Relation root)
{
	ListCell   *lc;

	foreach(lc, find_all_inheritors(RelationGetRelid(root), AccessExclusiveLock, NULL))
	{
		Relation	rel;

		if (has_table(rels, lfirst_oid(lc)))
			continue;
		rel = table_open(lfirst_oid(lc), NoLock);
		rels = add_table(rels, rel);
		*partitions = lappend(*partitions, rel);
	}
	return rels;
}

void
papply_truncate(char *message, int length)
{
	List	   *rels = NIL;
	List	   *partitions = NIL;
	bool		cascade;
	bool		restart_sequences;
	ListCell   *lc;

	papply_target_close_all();
	SetCurrentStatementStartTimestamp();
	PushActiveSnapshot(GetTransactionSnapshot());
	foreach(lc, papply_message_read_truncate(message, length, &cascade, &restart_sequences))
	{
		Relation	rel = papply_target_open_to_truncate(lfirst_oid(lc));

		rels = add_table(rels, rel);
		if (rel->rd_rel->relkind == RELKIND_PARTITIONED_TABLE)
			rels = add_partitions(rels, &partitions, rel);
	}
	papply_compat_truncate(rels, restart_sequences);
	foreach(lc, partitions)
		table_close(lfirst(lc), NoLock);
	papply_target_close_all();
	PopActiveSnapshot();
}
