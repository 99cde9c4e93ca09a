/*-------------------------------------------------------------------------
 * spool.c
 *	  Spool transactions that are streamed while they are in progress.
 *
 * Runs in the receiver.
 *
 * While there is a pool, the chunks of each streamed transaction are kept in a file
 * (spool_file.c) until its end is known.  When the transaction is committed (or
 * prepared), the file is read as an ordinary transaction: BEGIN, the changes, COMMIT.
 * So the later stages, and the core apply loop if it has to apply the transaction,
 * know nothing of streaming.  The alternative is to let the core apply loop spool.
 * Then the pool would be drained, and a single process would apply what may be the
 * largest transactions of all.
 *
 * If a writer can be spared, it applies the transaction at the same time, following the
 * receiver in the same file (in_progress.c).  If it has not given up when the COMMIT
 * arrives, the queue gets the transaction without its changes, as BEGIN and COMMIT, and
 * everything after depends on it, because its rows are not known.  The file is kept
 * until the transaction is committed, because the core apply loop may have to apply it
 * again.  The writer must give up, and the file is read as above, if a subtransaction
 * is rolled back of which the writer may have applied something, and if the transaction
 * is prepared.  If the writer has failed after many changes, or the core apply loop
 * failed to apply the transaction before, the core apply loop gets it from the file at
 * once.
 *
 * If a subtransaction is rolled back, the file is cut off at its first change.  All
 * changes behind it belong to it, or to subtransactions of it.  If a writer must give
 * up, they remain until it has closed the file, and are skipped when the file is
 * read.  Definitions are cut off with the changes, and the publisher repeats them after
 * the end of the subtransaction.  It repeats in each streamed transaction the
 * definitions that it has sent with others.  For a writer, each RELATION message has a
 * version.  Other transactions do not use that version before this one is committed,
 * unless they have the same definition.
 *
 * Without a pool, the core apply loop spools.  A pool does not start before the core
 * apply loop has ended what it has begun (lifecycle.c).  What was spooled here
 * is read from here, even if the pool has stopped in the meantime.
 *
 * If the process ends, the files are deleted, and the publisher streams the
 * transactions again.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/transam.h"
#include "access/xact.h"
#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/memutils.h"

#include "connection.h"
#include "dispatch.h"
#include "in_progress.h"
#include "local_schema.h"
#include "message.h"
#include "native_streams.h"
#include "pool.h"
#include "queue.h"
#include "relation_registry.h"
#include "remote_relation.h"
#include "spool.h"
#include "spool_file.h"
#include "spool_parts.h"
#include "statistics.h"
#include "writer_control.h"

/* In a chunk: kind, xid, the number of a relation or of relations, and more. */
#define MIN_STREAMED_LENGTH 10

/* A definition in a spool, for the writer that applies it in progress. */
typedef struct SpooledRelation
{
	uint32		version;
	Oid			schema;			/* of papply_local_schema_of() */
	bool		is_own;			/* the version is used by this spool only */
	PapplyMessage message;		/* the RELATION, without an xid; its data
								 * follows */
} SpooledRelation;

typedef struct Spool
{
	TransactionId xid;			/* of the top-level transaction */
	PapplySpoolFile file;
	bool		has_file;
	uint64		bytes;			/* in the file */
	PapplySpoolParts parts;		/* of the file */

	/* for the writer that applies it in progress */
	int			in_progress;	/* its place, or PAPPLY_NO_PLACE */
	int			was_in_progress;	/* its previous place, or PAPPLY_NO_PLACE */
	List	   *relations;		/* of SpooledRelation, in order of arrival */
	uint64		seqno;			/* in the queue, once it has ended */
} Spool;

/* A spool that is being read. */
typedef struct Reader
{
	Spool	   *spool;			/* NULL: none */
	PapplySpoolReader file;
	int			gap;			/* spool_parts.h */
} Reader;

/* All spools, and their files. */
typedef struct Spools
{
	List	   *open;			/* being received or read */
	List	   *ended;			/* applied in progress and complete, but not
								 * committed */
	FileSet		file_set;
	uint32		files;			/* created so far */
} Spools;

static Spools spools;

/* The chunk that is being received, between STREAM START and STREAM STOP. */
typedef struct Chunk
{
	Spool	   *spool;			/* NULL: none */
	bool		is_native;		/* the core apply loop spools it */
	StringInfoData data;		/* what is not yet in the file */
} Chunk;

static Chunk chunk;

/* A complete transaction that is being read. */
typedef struct Reading
{
	bool		has_begun;		/* BEGIN has been returned */
	bool		is_decided;		/* is it decided whether the changes follow? */
	Reader		reader;
	PapplyCommit commit;
	StringInfoData end;			/* the message that ended it */
	StringInfoData frame;		/* the message that is returned */
} Reading;

static Reading reading;

/* One of the ended spools, which the core apply loop applies. */
static Reader fallback_reader;

static Spool *
find_spool(TransactionId xid)
{
	ListCell   *lc;

	foreach(lc, spools.open)
	{
		if (((Spool *) lfirst(lc))->xid == xid)
			return lfirst(lc);
	}
	return NULL;
}

/* Looking up temp_tablespaces requires a transaction. */
static void
init_files(void)
{
	MemoryContext old_context = CurrentMemoryContext;

	StartTransactionCommand();
	FileSetInit(&spools.file_set);
	CommitTransactionCommand();
	MemoryContextSwitchTo(old_context);
}

static void
offer_in_progress(Spool *spool)
{
	spool->in_progress = papply_in_progress_offer(spool->xid, &spool->file);

	/* idle writers may have exited */
	if (spool->in_progress == PAPPLY_NO_PLACE && papply_in_progress_is_allowed() &&
		papply_writers_add())
		spool->in_progress = papply_in_progress_offer(spool->xid, &spool->file);
}

static Spool *
create_spool(TransactionId xid)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	Spool	   *spool = palloc0(sizeof(Spool));

	if (spools.files == 0)
		init_files();
	spool->xid = xid;
	spool->file.set = spools.file_set;
	spool->file.number = ++spools.files;
	spool->in_progress = spool->was_in_progress = PAPPLY_NO_PLACE;
	if (!papply_statistics_is_failed(xid))
		offer_in_progress(spool);
	spools.open = lappend(spools.open, spool);
	MemoryContextSwitchTo(old_context);
	return spool;
}

static void
revoke_in_progress(Spool *spool)
{
	if (spool->in_progress == PAPPLY_NO_PLACE)
		return;
	papply_in_progress_revoke(spool->in_progress);
	spool->was_in_progress = spool->in_progress;
	spool->in_progress = PAPPLY_NO_PLACE;
}

/* Free a spool that is not in a list. */
static void
free_spool(Spool *spool)
{
	ListCell   *lc;

	revoke_in_progress(spool);
	if (spool->has_file)
		papply_spool_file_delete(&spool->file);
	papply_spool_parts_free(&spool->parts);
	foreach(lc, spool->relations)
	{
		if (((SpooledRelation *) lfirst(lc))->is_own)
			papply_registry_drop(((SpooledRelation *) lfirst(lc))->version);
	}
	list_free_deep(spool->relations);
	pfree(spool);
}

static void
drop_spool(Spool *spool)
{
	spools.open = list_delete_ptr(spools.open, spool);
	free_spool(spool);
}

/* Is no writer reading the file, so that it may be truncated? */
static bool
is_ours_alone(Spool *spool)
{
	return spool->in_progress == PAPPLY_NO_PLACE &&
		(spool->was_in_progress == PAPPLY_NO_PLACE ||
		 !papply_in_progress_is_leaving(spool->was_in_progress, spool->xid));
}

/* Truncate the file to what will be read, if that is possible. */
static void
give_space_back(Spool *spool)
{
	uint64		tail = papply_spool_parts_tail(&spool->parts, spool->bytes);

	if (tail == spool->bytes || !is_ours_alone(spool))
		return;
	papply_spool_file_truncate(&spool->file, tail);
	spool->bytes = tail;
	papply_spool_parts_drop_tail(&spool->parts);
}

/* Roll back a subtransaction, of which nothing may have been received. */
static void
abort_subtransaction(Spool *spool, TransactionId xid)
{
	Assert(spool->seqno == PAPPLY_NO_SEQNO);
	if (!papply_spool_parts_cut(&spool->parts, xid, spool->bytes))
		return;
	revoke_in_progress(spool);
	give_space_back(spool);
}

/*** writing ***/

static void
append_chunk(Spool *spool)
{
	if (chunk.data.len == 0)
		return;
	papply_spool_file_append(&spool->file, !spool->has_file, chunk.data.data, chunk.data.len);
	spool->has_file = true;
	spool->bytes += chunk.data.len;
	papply_message_reset_buffer(&chunk.data);
	if (spool->in_progress != PAPPLY_NO_PLACE)
		papply_in_progress_publish(spool->in_progress, spool->bytes);
}

/* The writer waits for everything that was received before the chunk. */
static void
begin_chunk(Spool *spool)
{
	PapplySpooled head = {.subxid = InvalidTransactionId};

	papply_message_reset_buffer(&chunk.data);
	give_space_back(spool);
	if (spool->in_progress == PAPPLY_NO_PLACE)
		return;
	head.dependency = papply_queue_last_seqno();
	appendBinaryStringInfo(&chunk.data, (char *) &head, sizeof(head));
}

/* Return the last definition of this relation in the spool, or NULL. */
static SpooledRelation *
last_definition(Spool *spool, LogicalRepRelId relid)
{
	for (int i = list_length(spool->relations) - 1; i >= 0; i--)
	{
		SpooledRelation *relation = list_nth(spool->relations, i);

		if (relation->message.id == relid)
			return relation;
	}
	return NULL;
}

/*
 * Keep the definition of a relation, and return its version.  A version that other
 * transactions use too may be replaced and dropped in the meantime; then the writer
 * gives up.
 */
static uint32
add_relation(Spool *spool, const PapplyMessage *message)
{
	SpooledRelation *last = last_definition(spool, message->id);
	SpooledRelation *relation;
	MemoryContext old_context;

	if (last != NULL && papply_message_is_equal(&last->message, message))
		return last->version;	/* repeated after an invalidation on the
								 * publisher */

	old_context = MemoryContextSwitchTo(TopMemoryContext);
	relation = palloc(sizeof(SpooledRelation) + message->length);
	relation->message = *message;
	relation->message.data = (char *) (relation + 1);
	memcpy(relation->message.data, message->data, message->length);
	relation->schema = papply_local_schema_of(message->data, message->length);
	relation->version = papply_remote_relation_version(message, relation->schema);
	relation->is_own = relation->version == 0;
	if (relation->is_own)
		relation->version = papply_registry_add(message->data, message->length, relation->schema);
	spool->relations = lappend(spool->relations, relation);
	MemoryContextSwitchTo(old_context);
	return relation->version;
}

/*
 * In a chunk, each message has the xid of its (sub)transaction, which is left
 * out in the file.  Return a message without it, in palloc'd memory.
 */
static PapplyMessage
copy_without_xid(const PapplyMessage *message)
{
	int			length = message->length - sizeof(TransactionId);
	char	   *copy = palloc(length);

	Assert(message->length >= MIN_STREAMED_LENGTH);
	copy[0] = message->kind;
	memcpy(copy + 1, message->data + PAPPLY_MESSAGE_BODY, length - 1);
	return papply_message_read(copy, length);
}

static void
append_message(Spool *spool, const PapplyMessage *message)
{
	PapplySpooled head = {0};

	if (!TransactionIdIsValid(message->id) || message->length < MIN_STREAMED_LENGTH)
		papply_message_malformed();
	head.subxid = message->id;
	head.length = message->length - sizeof(TransactionId);
	if (message->kind == LOGICAL_REP_MSG_RELATION && spool->in_progress != PAPPLY_NO_PLACE)
	{
		PapplyMessage definition = copy_without_xid(message);

		head.relation_version = add_relation(spool, &definition);
		pfree(definition.data);
	}
	if (chunk.data.len + head.length > papply_spool_file_step(spool->bytes))
		append_chunk(spool);
	if (head.subxid != spool->xid)
		papply_spool_parts_note(&spool->parts, head.subxid, spool->bytes + chunk.data.len);
	appendBinaryStringInfo(&chunk.data, (char *) &head, sizeof(head));
	appendStringInfoCharMacro(&chunk.data, message->kind);
	appendBinaryStringInfo(&chunk.data, message->data + PAPPLY_MESSAGE_BODY, head.length - 1);
}

/* Note a definition; the publisher will not repeat it when there is a pool. */
static void
note_native_relation(const PapplyMessage *message)
{
	PapplyMessage definition;

	if (message->kind != LOGICAL_REP_MSG_RELATION || message->length < MIN_STREAMED_LENGTH)
		return;
	definition = copy_without_xid(message);
	papply_remote_relation_update(&definition, 0);
	pfree(definition.data);
}

static PapplyFate
start_chunk(const PapplyMessage *message, bool wants_spool)
{
	TransactionId xid = message->id;

	if (!TransactionIdIsValid(xid) || message->length <= PAPPLY_MESSAGE_BODY)
		papply_message_malformed();
	chunk.spool = find_spool(xid);
	if (chunk.spool == NULL && wants_spool && message->data[PAPPLY_MESSAGE_BODY] == 1)	/* the first chunk */
		chunk.spool = create_spool(xid);
	if (chunk.spool != NULL)
	{
		begin_chunk(chunk.spool);
		return PAPPLY_TAKEN;
	}

	chunk.is_native = true;
	papply_native_streams_begin(xid);
	return PAPPLY_TO_CORE_LOOP;
}

/* Report like the core apply loop, for readers of the log at DEBUG1. */
static void
report_end(const char *command)
{
	ereport(DEBUG1,
			(errmsg_internal("finished processing the STREAM %s command", command)));
}

static PapplyFate
abort_streamed(TransactionId xid, TransactionId subxid)
{
	Spool	   *spool = find_spool(xid);

	if (spool == NULL)
		return papply_native_streams_abort(xid, subxid) ? PAPPLY_TO_CORE_LOOP : PAPPLY_TAKEN;
	if (xid == subxid)
		drop_spool(spool);
	else
		abort_subtransaction(spool, subxid);
	report_end("ABORT");
	return PAPPLY_TAKEN;
}

static void
init_reader(Reader *reader, Spool *spool)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	Assert(reader->spool == NULL);
	papply_spool_reader_init(&reader->file, &spool->file);
	reader->spool = spool;
	reader->gap = 0;
	MemoryContextSwitchTo(old_context);
}

static void
end_reader(Reader *reader)
{
	papply_spool_reader_free(&reader->file);
	reader->spool = NULL;
}

static pg_noinline PapplyFate
end_streamed(const PapplyMessage *message)
{
	PapplyCommit commit;
	Spool	   *spool;

	papply_message_parse_commit(message, &commit);
	spool = find_spool(commit.xid);
	if (spool == NULL)
	{
		papply_native_streams_end(commit.xid);
		return PAPPLY_UNDECIDED;
	}

	if (spool->in_progress != PAPPLY_NO_PLACE && papply_in_progress_has_failed(spool->in_progress))
		papply_pool_set_fallback(commit.commit_lsn);
	reading.has_begun = reading.is_decided = false;
	reading.commit = commit;
	papply_message_reset_buffer(&reading.end);
	appendBinaryStringInfo(&reading.end, message->data, message->length);
	init_reader(&reading.reader, spool);
	report_end(message->kind == LOGICAL_REP_MSG_STREAM_PREPARE ? "PREPARE" : "COMMIT");
	return PAPPLY_TAKEN;
}

static void
append_to_chunk(const PapplyMessage *message)
{
	switch (message->kind)
	{
		case LOGICAL_REP_MSG_STREAM_STOP:
			append_chunk(chunk.spool);
			chunk.spool = NULL;
			break;
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
		case LOGICAL_REP_MSG_TRUNCATE:
		case LOGICAL_REP_MSG_RELATION:
			append_message(chunk.spool, message);
			break;
		case LOGICAL_REP_MSG_TYPE:
		case LOGICAL_REP_MSG_ORIGIN:
		case LOGICAL_REP_MSG_MESSAGE:
			break;				/* not needed to apply a transaction */
		default:
			papply_message_malformed();
	}
}

/*
 * The same for a chunk that the core apply loop spools.  It would end a
 * transaction that is within the chunk, and lose the file that is open.
 */
static void
check_native(char kind)
{
	switch (kind)
	{
		case LOGICAL_REP_MSG_BEGIN:
		case LOGICAL_REP_MSG_COMMIT:
		case LOGICAL_REP_MSG_BEGIN_PREPARE:
		case LOGICAL_REP_MSG_PREPARE:
		case LOGICAL_REP_MSG_COMMIT_PREPARED:
		case LOGICAL_REP_MSG_ROLLBACK_PREPARED:
			papply_message_malformed();
			break;
		default:				/* the core apply loop checks the others
								 * itself */
			break;
	}
}

PapplyFate
papply_spool_take(const PapplyMessage *message, bool wants_spool)
{
	Assert(!papply_spool_is_reading());
	if (chunk.spool != NULL)
	{
		append_to_chunk(message);
		return PAPPLY_TAKEN;
	}
	if (chunk.is_native)
	{
		check_native(message->kind);
		chunk.is_native = message->kind != LOGICAL_REP_MSG_STREAM_STOP;
		note_native_relation(message);
		return PAPPLY_TO_CORE_LOOP;
	}
	switch (message->kind)
	{
		case LOGICAL_REP_MSG_STREAM_START:
			return start_chunk(message, wants_spool);
		case LOGICAL_REP_MSG_STREAM_ABORT:
			return abort_streamed(message->id, papply_message_subxid(message));
		case LOGICAL_REP_MSG_STREAM_COMMIT:
		case LOGICAL_REP_MSG_STREAM_PREPARE:
			return end_streamed(message);
		default:
			return PAPPLY_UNDECIDED;
	}
}

/*** reading ***/

/* Skip what was rolled back and is still in the file. */
static void
pass_gap(Reader *reader)
{
	uint64		position = papply_spool_reader_position(&reader->file);
	uint64		next = papply_spool_parts_pass(&reader->spool->parts, &reader->gap, position);

	if (next != position)
		papply_spool_reader_skip(&reader->file, next);
}

/*
 * Return the next message to apply; at the end, one without data.  *version is that of a
 * definition for the writer, or 0.
 */
static PapplyMessage
next_message(Reader *reader, uint32 *version)
{
	PapplySpooled head;
	char	   *data;

	*version = 0;
	do
	{
		CHECK_FOR_INTERRUPTS();
		pass_gap(reader);
		if (!papply_spool_reader_next(&reader->file, reader->spool->bytes, &head, &data))
			return papply_message_read(NULL, 0);
	} while (head.length == 0);
	*version = head.relation_version;
	return papply_message_read(data, head.length);
}

/* Append a BEGIN; the formats are those of logicalproto.h. */
static void
append_begin(void)
{
	const PapplyCommit *commit = &reading.commit;
	bool		is_prepare = commit->type == LOGICAL_REP_MSG_STREAM_PREPARE;

	pq_sendbyte(&reading.frame, is_prepare ? LOGICAL_REP_MSG_BEGIN_PREPARE : LOGICAL_REP_MSG_BEGIN);
	if (is_prepare)
	{
		/* contents of a PREPARE without its flags */
		appendBinaryStringInfo(&reading.frame, reading.end.data + 2, reading.end.len - 2);
		return;
	}
	pq_sendint64(&reading.frame, commit->commit_lsn);
	pq_sendint64(&reading.frame, commit->commit_time);
	pq_sendint32(&reading.frame, commit->xid);
}

static void
append_commit(void)
{
	bool		is_prepare = reading.commit.type == LOGICAL_REP_MSG_STREAM_PREPARE;
	int			skipped = is_prepare ? 1 : 1 + sizeof(TransactionId);

	pq_sendbyte(&reading.frame, is_prepare ? LOGICAL_REP_MSG_PREPARE : LOGICAL_REP_MSG_COMMIT);
	appendBinaryStringInfo(&reading.frame, reading.end.data + skipped, reading.end.len - skipped);
}

/* The position is that of the end, or none: see route.c. */
static void
begin_frame(XLogRecPtr remote_lsn)
{
	papply_message_reset_buffer(&reading.frame);
	pq_sendbyte(&reading.frame, 'w');
	pq_sendint64(&reading.frame, remote_lsn);
	pq_sendint64(&reading.frame, remote_lsn);
	pq_sendint64(&reading.frame, papply_connection_last.send_time);
}

/*
 * Leave the transaction, which is complete, to the writer that has applied it
 * in progress, if there is one and it continues.  Its definitions are valid
 * from here on.  The transaction has begun in the queue, unless the core apply
 * loop has it.
 */
static bool
leave_to_writer(Spool *spool)
{
	PapplyCommit commit = reading.commit;
	ListCell   *lc;

	commit.type = LOGICAL_REP_MSG_COMMIT;
	if (spool->in_progress == PAPPLY_NO_PLACE || !papply_dispatch_is_open() ||
		reading.commit.type != LOGICAL_REP_MSG_STREAM_COMMIT ||
		!papply_in_progress_end(spool->in_progress, papply_queue_last_seqno(), &commit))
		return false;
	spool->seqno = papply_queue_last_seqno();
	papply_dispatch_mark_in_progress(spool->in_progress);
	foreach(lc, spool->relations)
	{
		SpooledRelation *relation = lfirst(lc);

		papply_remote_relation_update(&relation->message, spool->seqno);
	}
	return true;
}

/* Decide, after BEGIN, whether the changes follow. */
static void
decide_how_to_apply(Spool *spool)
{
	if (!leave_to_writer(spool))
		revoke_in_progress(spool);
	if (papply_dispatch_is_open())
		papply_statistics_count(spool->seqno != PAPPLY_NO_SEQNO ?
								PAPPLY_COUNT_STREAMED_IN_PROGRESS :
								PAPPLY_COUNT_STREAMED_FROM_FILE, 1);
	reading.is_decided = true;
}

/* Return the next change; one without data if COMMIT follows. */
static PapplyMessage
next_change(void)
{
	uint32		version;		/* it gets another one in the queue */

	if (!reading.is_decided)
		decide_how_to_apply(reading.reader.spool);
	return reading.reader.spool->seqno != PAPPLY_NO_SEQNO ? papply_message_read(NULL, 0) :
		next_message(&reading.reader, &version);
}

/* Finish; COMMIT has been returned. */
static void
end_reading(void)
{
	Spool	   *spool = reading.reader.spool;

	end_reader(&reading.reader);
	if (spool->seqno != PAPPLY_NO_SEQNO)
	{
		MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

		Assert(spools.ended == NIL || ((Spool *) llast(spools.ended))->seqno < spool->seqno);
		spools.open = list_delete_ptr(spools.open, spool);
		spools.ended = lappend(spools.ended, spool);
		MemoryContextSwitchTo(old_context);
	}
	else
		drop_spool(spool);
}

bool
papply_spool_is_empty(void)
{
	return spools.open == NIL && spools.ended == NIL;
}

bool
papply_spool_is_reading(void)
{
	return reading.reader.spool != NULL;
}

int
papply_spool_next(char **buffer)
{
	PapplyMessage message;

	Assert(papply_spool_is_reading());
	begin_frame(InvalidXLogRecPtr);
	if (!reading.has_begun)
	{
		append_begin();
		reading.has_begun = true;
	}
	else if ((message = next_change()).data != NULL)
		appendBinaryStringInfo(&reading.frame, message.data, message.length);
	else
	{
		begin_frame(reading.commit.end_lsn);
		append_commit();
		end_reading();
	}
	*buffer = reading.frame.data;
	return reading.frame.len;
}

/*** what was applied in progress ***/

void
papply_spool_revoke_in_progress(void)
{
	ListCell   *lc;

	foreach(lc, spools.open)
	{
		Spool	   *spool = lfirst(lc);

		if (spool->seqno == PAPPLY_NO_SEQNO)
			revoke_in_progress(spool);
	}
}

void
papply_spool_pool_stopped(void)
{
	ListCell   *lc;

	foreach(lc, spools.open)
	{
		Spool	   *spool = lfirst(lc);

		spool->in_progress = spool->was_in_progress = PAPPLY_NO_PLACE;
		list_free_deep(spool->relations);
		spool->relations = NIL;
	}
}

void
papply_spool_clean(uint64 committed)
{
	while (spools.ended != NIL)
	{
		Spool	   *spool = linitial(spools.ended);

		if (spool->seqno > committed)
			return;
		papply_in_progress_release(spool->in_progress);
		spool->in_progress = PAPPLY_NO_PLACE;
		spools.ended = list_delete_first(spools.ended);
		free_spool(spool);
	}
}

void
papply_spool_fallback_begin(uint64 seqno)
{
	ListCell   *lc;

	foreach(lc, spools.ended)
	{
		if (((Spool *) lfirst(lc))->seqno == seqno)
			init_reader(&fallback_reader, lfirst(lc));
	}
	Assert(fallback_reader.spool != NULL);
}

/* Return the local schema of that version of a relation. */
static Oid
schema_of(const Spool *spool, uint32 version)
{
	ListCell   *lc;

	foreach(lc, spool->relations)
	{
		const SpooledRelation *relation = lfirst(lc);

		if (relation->version == version)
			return relation->schema;
	}
	return InvalidOid;
}

PapplyMessage
papply_spool_fallback_next(Oid *schema)
{
	uint32		version;
	PapplyMessage message = next_message(&fallback_reader, &version);

	*schema = version == 0 ? InvalidOid : schema_of(fallback_reader.spool, version);
	if (message.data == NULL)
		end_reader(&fallback_reader);
	return message;
}

void
papply_spool_end(void)
{
	if (spools.file_set.creator_pid != 0)
		FileSetDeleteAll(&spools.file_set);
}

bool
papply_spool_is_open(void)
{
	return chunk.spool != NULL;
}

bool
papply_spool_native_is_open(void)
{
	return chunk.is_native;
}
