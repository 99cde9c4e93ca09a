/*-------------------------------------------------------------------------
 * source.c
 *	  Where the changes that a writer applies come from.
 *
 * Runs in a writer.
 *
 * Usually they come from the queue.  The changes of a streamed transaction
 * that is applied in progress are read from the file that the receiver spools
 * it to (spool.c), while it arrives, and are converted to entries as in the
 * queue.  The version of a definition comes with its message, and applies to
 * the changes after it.  The dependency of a change is not derived from its
 * rows:  it is everything that was received before its chunk.  A transaction
 * received later can only be blocked by it, as by any younger transaction; on
 * the publisher, the rows that it has changed are locked until it ends.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "commit_order.h"
#include "in_progress.h"
#include "local_commit.h"
#include "pool.h"
#include "source.h"

/* The current definition of a relation. */
typedef struct RelationVersion
{
	LogicalRepRelId remote_relid;
	uint32		version;
} RelationVersion;

/* What is read of a streamed transaction. */
typedef struct InProgressSource
{
	MemoryContext context;		/* holds the reader and the versions */
	PapplySpoolReader reader;
	HTAB	   *versions;
	uint64		dependency;		/* of the changes of this chunk */
	StringInfoData entry_bytes;
	void		(*check) (void);
} InProgressSource;

static InProgressSource in_progress;

PapplyEntry *
papply_source_next(uint64 *position)
{
	PapplyEntry *entry = papply_queue_read(position);
	int			sleeps = 0;

	while (entry == NULL)
	{
		if (papply_queue_want_data(*position))
			papply_commit_order_sleep(PAPPLY_WRITER_WAIT_DATA, &sleeps);
		papply_queue_got_data();
		entry = papply_queue_read(position);
	}
	if (sleeps > 0)
		papply_pool_set_state(PAPPLY_WRITER_APPLYING);
	return entry;
}

void
papply_source_begin_in_progress(void (*check) (void))
{
	MemoryContext old_context;
	HASHCTL		ctl;

	Assert(papply_in_progress_mine() != NULL);
	in_progress.check = check;
	if (in_progress.context == NULL)
		in_progress.context = AllocSetContextCreate(TopMemoryContext, "parallel_apply in-progress source",
													ALLOCSET_DEFAULT_SIZES);
	old_context = MemoryContextSwitchTo(in_progress.context);
	papply_spool_reader_init(&in_progress.reader, &papply_in_progress_mine()->file);
	initStringInfo(&in_progress.entry_bytes);
	ctl.keysize = sizeof(LogicalRepRelId);
	ctl.entrysize = sizeof(RelationVersion);
	ctl.hcxt = in_progress.context;
	in_progress.versions = hash_create("parallel_apply in-progress versions", 16, &ctl,
									   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	in_progress.dependency = PAPPLY_NO_SEQNO;
	MemoryContextSwitchTo(old_context);
}

static void
note_version(const char *message, uint32 version)
{
	LogicalRepRelId remote_relid = papply_message_get_uint32(message + 1);
	RelationVersion *relation = hash_search(in_progress.versions, &remote_relid, HASH_ENTER, NULL);

	relation->version = version;
}

/*
 * Return the version of a relation.  The publisher describes a relation before
 * it changes it; otherwise the message is malformed.
 */
static uint32
version_of(const char *relid)
{
	LogicalRepRelId remote_relid = papply_message_get_uint32(relid);
	RelationVersion *relation = hash_search(in_progress.versions, &remote_relid, HASH_FIND, NULL);

	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("relation %u has not been described", remote_relid)));
	return relation->version;
}

static PapplyEntry *
make_entry(const PapplySpooled *head, const char *message)
{
	PapplyEntry *entry;

	resetStringInfo(&in_progress.entry_bytes);
	enlargeStringInfo(&in_progress.entry_bytes, sizeof(PapplyEntry) + head->length);
	entry = (PapplyEntry *) in_progress.entry_bytes.data;
	memset(entry, 0, sizeof(*entry));
	entry->length = head->length;
	entry->kind = PAPPLY_ENTRY_MESSAGE;
	entry->dependency = in_progress.dependency;
	memcpy(PapplyEntryData(entry), message, head->length);
	if (message[0] != LOGICAL_REP_MSG_TRUNCATE) /* which is refused */
		entry->relation_version = version_of(message + 1);
	return entry;
}

/*
 * Sleep, possibly for hours, without a snapshot, because CREATE INDEX
 * CONCURRENTLY would wait for it.  The caller takes a new one afterwards.
 */
static void
sleep_for_message(int *sleeps)
{
	if (*sleeps == 0)
		papply_local_release_snapshot();
	papply_commit_order_sleep(PAPPLY_WRITER_WAIT_DATA, sleeps);
	in_progress.check();
	InvalidateCatalogSnapshot();	/* which the check has used */
}

/*
 * Sleep until there is a message.  Returns false if there is none because the
 * transaction has ended.
 */
static bool
wait_for_message(PapplySpooled *head, char **message, PapplyCommit *commit)
{
	int			sleeps = 0;
	bool		has_ended;
	bool		found;

	papply_in_progress_check();
	for (;;)
	{
		has_ended = papply_in_progress_has_ended(commit);
		pg_read_barrier();		/* pairs with papply_in_progress_publish() */
		found = papply_spool_reader_next(&in_progress.reader,
										 pg_atomic_read_u64(&papply_in_progress_mine()->bytes),
										 head, message);
		if (found || has_ended)
			break;
		sleep_for_message(&sleeps);
	}
	if (sleeps > 0)
	{
		papply_local_take_snapshot();
		papply_pool_set_state(PAPPLY_WRITER_APPLYING);
	}
	return found;
}

PapplyEntry *
papply_source_next_in_progress(PapplyCommit *commit)
{
	PapplySpooled head;
	char	   *message;

	while (wait_for_message(&head, &message, commit))
	{
		if (head.length == 0)
			in_progress.dependency = head.dependency;
		else if (message[0] == LOGICAL_REP_MSG_RELATION)
			note_version(message, head.relation_version);
		else
			return make_entry(&head, message);
	}
	return NULL;
}

void
papply_source_end_in_progress(void)
{
	if (in_progress.context != NULL)
		MemoryContextReset(in_progress.context);
}
