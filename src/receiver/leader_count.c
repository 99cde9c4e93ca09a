/*-------------------------------------------------------------------------
 * leader_count.c
 *	  Count changes of each table that the apply worker itself applies for a
 *	  pool.
 *
 * Runs in the receiver.
 *
 * Changes that the native loop (PostgreSQL's own apply loop) applies for the
 * pool, in a fallback or in a small transaction while the writers are idle,
 * count in parallel_apply.tables like those of writers.  A message is counted
 * when the native loop gets it.  The counts are added to the statistics when
 * the transaction is committed.  An error ends the process, and with it the
 * counts.
 *
 * Rows that the native loop finds missing do not count as missing, because it
 * does not report which changes it skips.
 *
 * Nothing is counted without a pool.  PostgreSQL's own apply is left alone
 * then, and counting would require a lookup of the local table, which only a
 * pool needs.
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

/* Counts of one relation of the publisher. */
typedef struct Count
{
	LogicalRepRelId remote_relid;	/* hash key */
	bool		is_counted;		/* in the list, for this transaction */
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
