/*-------------------------------------------------------------------------
 * leader_count.c
 *	  What the apply worker itself has changed in each table, beside a pool.
 *
 * Runs in the receiver.
 *
 * What the native loop applies for the pool (a fallback, or a small transaction while
 * the writers are idle) counts in parallel_apply.tables as what writers apply does.
 * Its messages are counted when it gets them, and added to the statistics when the
 * transaction is committed; an error ends the process, and with it what was counted.
 *
 * Rows that are missing are not: the native loop does not say which ones it skips.
 *
 * Without a pool nothing is counted.  PostgreSQL's own apply is left alone then, and
 * the local table, which only a pool has to know, would have to be looked up.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "replication/logicalproto.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"

#include "leader_count.h"
#include "message.h"
#include "remote_relation.h"
#include "table_statistics.h"

/* Of one relation of the publisher. */
typedef struct Count
{
	LogicalRepRelId remote_relid;	/* hash key */
	bool		is_counted;		/* in the list, of the transaction */
	uint64		counts[PAPPLY_TABLE_COUNTERS];
	PapplyTableHint hint;
	struct Count *next;
} Count;

static HTAB *counts_by_relid = NULL;
static Count *counted = NULL;

static Count *
get_count(LogicalRepRelId remote_relid)
{
	Count	   *count;
	bool		found;

	if (counts_by_relid == NULL)
	{
		HASHCTL		control = {0};

		control.keysize = sizeof(LogicalRepRelId);
		control.entrysize = sizeof(Count);
		control.hcxt = TopMemoryContext;
		counts_by_relid = hash_create("rows changed by the apply worker", 64, &control,
									  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	count = hash_search(counts_by_relid, &remote_relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(count, 0, sizeof(*count));
		count->remote_relid = remote_relid;
	}
	return count;
}

static PapplyTableCounter
counter_of(char kind)
{
	switch (kind)
	{
		case LOGICAL_REP_MSG_INSERT:
			return PAPPLY_TABLE_INSERTS;
		case LOGICAL_REP_MSG_UPDATE:
			return PAPPLY_TABLE_UPDATES;
		case LOGICAL_REP_MSG_DELETE:
			return PAPPLY_TABLE_DELETES;
		default:
			return PAPPLY_TABLE_COUNTERS;
	}
}

void
papply_leader_count_message(const char *message, int length)
{
	PapplyTableCounter counter = counter_of(message[0]);
	Count	   *count;

	if (counter == PAPPLY_TABLE_COUNTERS || length < 5)
		return;
	count = get_count(papply_message_get_uint32(message + 1));
	count->counts[counter]++;
	if (count->is_counted)
		return;
	count->is_counted = true;
	count->next = counted;
	counted = count;
}

void
papply_leader_count_commit(Oid subid)
{
	for (; counted != NULL; counted = counted->next)
	{
		PapplyRemoteRelation *rel = papply_remote_relation_get(counted->remote_relid, false);

		if (rel != NULL && OidIsValid(rel->local_relid))
			papply_table_statistics_add(subid, rel->local_relid, counted->counts,
										&counted->hint);
		memset(counted->counts, 0, sizeof(counted->counts));
		counted->is_counted = false;
	}
}
