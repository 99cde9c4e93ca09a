/*-------------------------------------------------------------------------
 * spool.c
 *	  Transactions that are streamed while they are in progress.
 *
 * Runs in the receiver.
 *
 * While there is a pool, chunks are kept here, in a temporary file for each
 * transaction, until its end is known.  When it is committed (or prepared), it
 * is read as an ordinary transaction: BEGIN, the changes, COMMIT; what became
 * of it before is forgotten.  So the stages that follow, and the native loop
 * if it has to do the transaction, know nothing of streaming.  The alternative,
 * to let the native loop spool, would end in a drain of the pool and in one
 * process that applies what may be the largest transactions of all.
 *
 * Changes of subtransactions that were rolled back are left out when the file
 * is read; the native loop cuts its file instead, which needs the place of
 * each subtransaction.  RELATION messages are never left out: the publisher
 * does not repeat in other transactions what it has sent in one that commits.
 *
 * Without a pool the native loop spools.  What it has begun, it ends: a pool
 * does not start before (lifecycle.c).  What was begun here is read from here
 * even if the pool has stopped meanwhile.
 *
 * If the process ends, the files go with it, and the publisher streams again.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "storage/buffile.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "message.h"
#include "native_replay.h"
#include "remote_relation.h"
#include "spool.h"

typedef struct Spool
{
	TransactionId xid;			/* of the top-level transaction */
	BufFile    *file;
	uint64		bytes;			/* in the file */
	HTAB	   *aborted;		/* subtransactions rolled back; NULL: none */
} Spool;

/* Head of a message in the file. */
typedef struct SpooledMessage
{
	TransactionId subxid;
	uint32		length;
} SpooledMessage;

/* A complete transaction that is being read. */
typedef struct Reading
{
	Spool	   *spool;			/* NULL: none */
	bool		has_begun;		/* BEGIN has been returned */
	uint64		position;
	PapplyCommit commit;
	StringInfoData end;			/* the message that ended it */
} Reading;

static List *spools = NIL;
static Spool *open_spool = NULL;	/* between its STREAM START and STREAM
									 * STOP */

static List *native_xids = NIL;
static bool native_is_open = false;

static Reading reading;
static StringInfoData frame;

static Spool *
find_spool(TransactionId xid)
{
	ListCell   *lc;

	foreach(lc, spools)
		if (((Spool *) lfirst(lc))->xid == xid)
		return lfirst(lc);
	return NULL;
}

static Spool *
create_spool(TransactionId xid)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);
	ResourceOwner old_owner = CurrentResourceOwner;
	Spool	   *spool = palloc0(sizeof(Spool));

	CurrentResourceOwner = NULL;	/* it outlives local transactions */
	spool->xid = xid;
	spool->file = BufFileCreateTemp(true);
	spools = lappend(spools, spool);
	CurrentResourceOwner = old_owner;
	MemoryContextSwitchTo(old_context);
	return spool;
}

static void
drop_spool(Spool *spool)
{
	BufFileClose(spool->file);
	if (spool->aborted != NULL)
		hash_destroy(spool->aborted);
	spools = list_delete_ptr(spools, spool);
	pfree(spool);
}

static void
note_aborted(Spool *spool, TransactionId subxid)
{
	if (spool->aborted == NULL)
	{
		HASHCTL		ctl;

		ctl.keysize = ctl.entrysize = sizeof(TransactionId);
		ctl.hcxt = TopMemoryContext;
		spool->aborted = hash_create("parallel_apply rolled back subtransactions", 16,
									 &ctl, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	(void) hash_search(spool->aborted, &subxid, HASH_ENTER, NULL);
}

/*** writing ***/

/* In a chunk, the xid of the (sub)transaction follows the kind byte. */
static void
keep_message(Spool *spool, char *message, int length)
{
	SpooledMessage head;

	head.subxid = papply_message_get_uint32(message + 1);
	head.length = length - sizeof(TransactionId);
	BufFileWrite(spool->file, &head, sizeof(head));
	BufFileWrite(spool->file, message, 1);
	BufFileWrite(spool->file, message + 5, length - 5);
	spool->bytes += sizeof(head) + head.length;
}

/* The rest is not needed to apply a transaction. */
static bool
is_kept(const char *message, int length)
{
	switch (message[0])
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
		case LOGICAL_REP_MSG_TRUNCATE:
		case LOGICAL_REP_MSG_RELATION:
			return length > 9;
		default:
			return false;
	}
}

/* Without a pool: the publisher will not repeat it when there is one. */
static void
note_native_relation(char *message, int length)
{
	char	   *copy;

	if (message[0] != LOGICAL_REP_MSG_RELATION || length <= 9)
		return;
	copy = palloc(length - 4);
	copy[0] = message[0];
	memcpy(copy + 1, message + 5, length - 5);
	papply_remote_relation_update(copy, length - 4, 0);
	pfree(copy);
}

static PapplySpoolResult
start_chunk(TransactionId xid, bool is_first, bool wants_spool)
{
	open_spool = find_spool(xid);
	if (open_spool == NULL && is_first && wants_spool)
		open_spool = create_spool(xid);
	if (open_spool != NULL)
		return PAPPLY_SPOOL_KEPT;

	native_is_open = true;
	if (!list_member_oid(native_xids, xid))
	{
		MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

		native_xids = lappend_oid(native_xids, xid);
		MemoryContextSwitchTo(old_context);
	}
	return PAPPLY_SPOOL_NATIVE;
}

/* As the native loop says it; who follows streams at DEBUG1 reads it. */
static void
report_end(const char *command)
{
	ereport(DEBUG1,
			(errmsg_internal("finished processing the STREAM %s command", command)));
}

static PapplySpoolResult
abort_streamed(TransactionId xid, TransactionId subxid)
{
	Spool	   *spool = find_spool(xid);

	if (spool == NULL)
	{
		/*
		 * A publisher from 18 on may say so of a subtransaction of which it
		 * has sent nothing, because it was rolled back already.  The native
		 * loop, unless it has spooled something before, crashes on that.
		 */
		if (!list_member_oid(native_xids, xid))
			return PAPPLY_SPOOL_KEPT;
		if (xid == subxid)
			native_xids = list_delete_oid(native_xids, xid);
		return PAPPLY_SPOOL_NATIVE;
	}
	if (xid == subxid)
		drop_spool(spool);
	else
		note_aborted(spool, subxid);
	report_end("ABORT");
	return PAPPLY_SPOOL_KEPT;
}

static PapplySpoolResult
end_streamed(char *message, int length)
{
	PapplyCommit commit;
	Spool	   *spool;

	papply_message_parse_commit(message, length, &commit);
	spool = find_spool(commit.xid);
	if (spool == NULL)
	{
		native_xids = list_delete_oid(native_xids, commit.xid);
		return PAPPLY_SPOOL_NONE;
	}

	reading.spool = spool;
	reading.has_begun = false;
	reading.position = 0;
	reading.commit = commit;
	papply_message_reset_buffer(&reading.end);
	appendBinaryStringInfo(&reading.end, message, length);
	if (BufFileSeek(spool->file, 0, 0, SEEK_SET) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not seek in temporary file: %m")));
	report_end(message[0] == LOGICAL_REP_MSG_STREAM_PREPARE ? "PREPARE" : "COMMIT");
	return PAPPLY_SPOOL_ENDED;
}

PapplySpoolResult
papply_spool_take(char *message, int length, bool wants_spool)
{
	if (open_spool != NULL)
	{
		if (message[0] == LOGICAL_REP_MSG_STREAM_STOP)
			open_spool = NULL;
		else if (is_kept(message, length))
			keep_message(open_spool, message, length);
		return PAPPLY_SPOOL_KEPT;
	}
	if (native_is_open)
	{
		native_is_open = message[0] != LOGICAL_REP_MSG_STREAM_STOP;
		note_native_relation(message, length);
		return PAPPLY_SPOOL_NATIVE;
	}
	switch (message[0])
	{
		case LOGICAL_REP_MSG_STREAM_START:
			if (length >= 6)
				return start_chunk(papply_message_get_uint32(message + 1),
								   message[5] == 1, wants_spool);
			break;
		case LOGICAL_REP_MSG_STREAM_ABORT:
			if (length >= 9)
				return abort_streamed(papply_message_get_uint32(message + 1),
									  papply_message_get_uint32(message + 5));
			break;
		case LOGICAL_REP_MSG_STREAM_COMMIT:
		case LOGICAL_REP_MSG_STREAM_PREPARE:
			return end_streamed(message, length);
		default:
			break;
	}
	return PAPPLY_SPOOL_NONE;
}

/*** reading ***/

static void
read_file(void *data, size_t size)
{
	if (BufFileRead(reading.spool->file, data, size) != size)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read from temporary file: %m")));
	reading.position += size;
}

static bool
is_left_out(TransactionId subxid, char kind)
{
	return reading.spool->aborted != NULL && kind != LOGICAL_REP_MSG_RELATION &&
		hash_search(reading.spool->aborted, &subxid, HASH_FIND, NULL) != NULL;
}

/* The next message that counts, appended to the frame; false at the end. */
static bool
append_change(void)
{
	int			header_length = frame.len;
	SpooledMessage head;

	while (reading.position < reading.spool->bytes)
	{
		CHECK_FOR_INTERRUPTS();
		read_file(&head, sizeof(head));
		enlargeStringInfo(&frame, head.length);
		read_file(frame.data + header_length, head.length);
		if (is_left_out(head.subxid, frame.data[header_length]))
			continue;
		frame.len += head.length;
		frame.data[frame.len] = '\0';
		return true;
	}
	return false;
}

/* The formats are those of logicalproto.h. */
static void
append_begin(void)
{
	const PapplyCommit *commit = &reading.commit;
	bool		is_prepare = commit->type == LOGICAL_REP_MSG_STREAM_PREPARE;

	pq_sendbyte(&frame, is_prepare ? LOGICAL_REP_MSG_BEGIN_PREPARE : LOGICAL_REP_MSG_BEGIN);
	if (is_prepare)
	{
		/* what a PREPARE says, without its flags */
		appendBinaryStringInfo(&frame, reading.end.data + 2, reading.end.len - 2);
		return;
	}
	pq_sendint64(&frame, commit->commit_lsn);
	pq_sendint64(&frame, commit->commit_time);
	pq_sendint32(&frame, commit->xid);
}

static void
append_commit(void)
{
	bool		is_prepare = reading.commit.type == LOGICAL_REP_MSG_STREAM_PREPARE;
	int			skipped = is_prepare ? 1 : 1 + sizeof(TransactionId);

	pq_sendbyte(&frame, is_prepare ? LOGICAL_REP_MSG_PREPARE : LOGICAL_REP_MSG_COMMIT);
	appendBinaryStringInfo(&frame, reading.end.data + skipped, reading.end.len - skipped);
}

/* Positions are those of the end, or none: see receiver.c. */
static void
begin_frame(XLogRecPtr remote_lsn)
{
	papply_message_reset_buffer(&frame);
	pq_sendbyte(&frame, 'w');
	pq_sendint64(&frame, remote_lsn);
	pq_sendint64(&frame, remote_lsn);
	pq_sendint64(&frame, papply_native_send_time());
}

bool
papply_spool_is_reading(void)
{
	return reading.spool != NULL;
}

int
papply_spool_next(char **buffer)
{
	begin_frame(InvalidXLogRecPtr);
	if (!reading.has_begun)
	{
		append_begin();
		reading.has_begun = true;
	}
	else if (!append_change())
	{
		begin_frame(reading.commit.end_lsn);
		append_commit();
		drop_spool(reading.spool);
		reading.spool = NULL;
	}
	*buffer = frame.data;
	return frame.len;
}

bool
papply_spool_native_is_open(void)
{
	return native_is_open;
}

bool
papply_spool_has_native(void)
{
	return native_xids != NIL;
}
