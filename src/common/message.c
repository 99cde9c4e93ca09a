/*-------------------------------------------------------------------------
 * message.c
 *	  Messages of the logical replication protocol, fields located in place.
 *
 * Runs in the receiver (for row keys, and to describe a row) and in writers (to
 * apply changes).
 *
 * The server's own functions (logicalproto.h) allocate and copy every column.
 * The receiver reads the messages for all writers and needs only the bytes of
 * the key, so it uses pointers into the message.  Writers use the same
 * functions.  The format is described in PostgreSQL's documentation under
 * "Logical Replication Message Formats".  The kinds of columns are those of
 * logicalproto.h.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "port/pg_bswap.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "message.h"

/* Size up to which a buffer is kept for the next message. */
#define MAX_BUFFER_BYTES (1024 * 1024)

/*
 * A server that asks for a later version of the protocol may receive kinds of
 * messages that are not known here.
 */
StaticAssertDecl(LOGICALREP_PROTO_MAX_VERSION_NUM <= 4, "versions of the protocol that are known");

/* The unread part of a message. */
typedef struct Reader
{
	char	   *position;
	char	   *end;
} Reader;

void
papply_message_malformed(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION),
			 errmsg("malformed logical replication message")));
}

/* Take length bytes; return NULL if there are fewer. */
static char *
try_bytes(Reader *reader, int length)
{
	char	   *position = reader->position;

	if (length < 0 || reader->end - position < length)
		return NULL;
	reader->position += length;
	return position;
}

static char *
take_bytes(Reader *reader, int length)
{
	char	   *position = try_bytes(reader, length);

	if (position == NULL)
		papply_message_malformed();
	return position;
}

/* Begin after the kind, or at the body. */
static Reader
begin_reading(const PapplyMessage *message, int offset)
{
	return (Reader)
	{
		message->data + offset, message->data + message->length
	};
}

static uint32
take_uint32(Reader *reader)
{
	return papply_message_get_uint32(take_bytes(reader, 4));
}

static uint64
take_uint64(Reader *reader)
{
	return papply_message_get_uint64(take_bytes(reader, 8));
}

static XLogRecPtr
take_lsn(Reader *reader)
{
	XLogRecPtr	lsn = take_uint64(reader);

	if (lsn == InvalidXLogRecPtr)
		papply_message_malformed();
	return lsn;
}

void
papply_message_parse_commit(const PapplyMessage *message, PapplyCommit *commit)
{
	bool		is_stream = message->kind == LOGICAL_REP_MSG_STREAM_COMMIT;
	Reader		reader = begin_reading(message, is_stream ? PAPPLY_MESSAGE_BODY : 1);

	memset(commit, 0, sizeof(*commit));
	commit->type = message->kind;
	if (is_stream)
		commit->xid = message->id;
	if (*take_bytes(&reader, 1) != 0)	/* flags; none are defined */
		papply_message_malformed();
	commit->commit_lsn = take_lsn(&reader);
	commit->end_lsn = take_lsn(&reader);
	if (commit->type == LOGICAL_REP_MSG_ROLLBACK_PREPARED)
	{
		commit->prepare_end_lsn = commit->commit_lsn;
		commit->commit_lsn = commit->end_lsn;
		commit->prepare_time = take_uint64(&reader);
	}
	commit->commit_time = take_uint64(&reader);
	if (commit->type == LOGICAL_REP_MSG_COMMIT)
		return;
	if (!is_stream)
		commit->xid = take_uint32(&reader);
	if (!TransactionIdIsValid(commit->xid))
		papply_message_malformed();
}

bool
papply_message_parse_first(const PapplyMessage *message, PapplyBegin *begin)
{
	PapplyCommit commit;

	switch (message->kind)
	{
		case LOGICAL_REP_MSG_BEGIN:
		case LOGICAL_REP_MSG_BEGIN_PREPARE:
			papply_message_parse_begin(message, begin);
			return true;
		case LOGICAL_REP_MSG_COMMIT_PREPARED:
		case LOGICAL_REP_MSG_ROLLBACK_PREPARED:
		case LOGICAL_REP_MSG_STREAM_COMMIT:
		case LOGICAL_REP_MSG_STREAM_PREPARE:
			papply_message_parse_commit(message, &commit);
			begin->final_lsn = commit.commit_lsn;
			begin->commit_time = commit.commit_time;
			begin->xid = commit.xid;
			begin->end_lsn = commit.end_lsn;
			return true;
		default:
			return false;
	}
}

static void
take_tuple(Reader *reader, PapplyTuple *tuple)
{
	uint16		ncolumns;

	memcpy(&ncolumns, take_bytes(reader, 2), 2);
	tuple->ncolumns = pg_ntoh16(ncolumns);
	if (tuple->ncolumns > MaxTupleAttributeNumber)
		papply_message_malformed();

	for (int i = 0; i < tuple->ncolumns; i++)
	{
		PapplyColumn *column = &tuple->columns[i];

		column->kind = *take_bytes(reader, 1);
		column->length = 0;
		column->data = NULL;
		switch (column->kind)
		{
			case LOGICALREP_COLUMN_NULL:
			case LOGICALREP_COLUMN_UNCHANGED:
				break;
			case LOGICALREP_COLUMN_TEXT:
			case LOGICALREP_COLUMN_BINARY:
				column->length = take_uint32(reader);
				column->data = take_bytes(reader, column->length);
				break;
			default:
				papply_message_malformed();
		}
	}
}

void
papply_message_parse_change(const PapplyMessage *message, PapplyChange *change)
{
	Reader		reader = begin_reading(message, PAPPLY_MESSAGE_BODY);
	char		tag;

	change->type = message->kind;
	change->remote_relid = message->id;
	change->has_old = change->has_new = false;

	tag = *take_bytes(&reader, 1);
	if ((tag == 'K' || tag == 'O') && change->type != LOGICAL_REP_MSG_INSERT)
	{
		take_tuple(&reader, &change->old_tuple);
		change->has_old = true;
		if (change->type == LOGICAL_REP_MSG_DELETE)
			return;
		tag = *take_bytes(&reader, 1);
	}
	if (tag != 'N' || change->type == LOGICAL_REP_MSG_DELETE)
		papply_message_malformed();
	take_tuple(&reader, &change->new_tuple);
	change->has_new = true;
}

/* The server's function needs a zero byte behind the strings, which a StringInfo has. */
LogicalRepRelation *
papply_message_read_relation(const char *message, int length)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendBinaryStringInfo(&buf, message, length);
	buf.cursor = 1;				/* after the message type */
	return logicalrep_read_rel(&buf);
}

List *
papply_message_read_truncate(char *message, int length, bool *cascade, bool *restart_sequences)
{
	StringInfoData buf;

	buf.data = message;
	buf.len = length;
	buf.maxlen = -1;
	buf.cursor = 1;				/* after the message type */
	return logicalrep_read_truncate(&buf, cascade, restart_sequences);
}

void
papply_message_reset_buffer(StringInfo buf)
{
	if (buf->data != NULL && buf->maxlen <= MAX_BUFFER_BYTES)
		resetStringInfo(buf);
	else
	{
		MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

		if (buf->data != NULL)
			pfree(buf->data);
		initStringInfo(buf);
		MemoryContextSwitchTo(old_context);
	}
}

void
papply_message_terminate_columns(PapplyTuple *tuple)
{
	for (int i = 0; i < tuple->ncolumns; i++)
		if (tuple->columns[i].kind == LOGICALREP_COLUMN_TEXT)
			tuple->columns[i].data[tuple->columns[i].length] = '\0';
}

/* Write bytes like the output function of bytea. */
static int
show_binary(const char *data, int length, char *buffer, int size)
{
	int			shown = Min(length, (size - 3) / 2);

	Assert(size >= 3);
	memcpy(buffer, "\\x", 2);
	(void) hex_encode(data, shown, buffer + 2);
	buffer[2 + 2 * shown] = '\0';

	return 2 + 2 * shown;
}

int
papply_message_show_column(const PapplyColumn *column, char *buffer, int size)
{
	int			length;

	switch (column->kind)
	{
		case LOGICALREP_COLUMN_TEXT:
			length = papply_text_clip(column->data, column->length, size - 1);
			memcpy(buffer, column->data, length);
			buffer[length] = '\0';

			return length;
		case LOGICALREP_COLUMN_BINARY:
			return show_binary(column->data, column->length, buffer, size);
		case LOGICALREP_COLUMN_NULL:
			return strlcpy(buffer, "null", size);
		default:
			return strlcpy(buffer, "?", size);
	}
}

/*** the key of a row, without an error in a message that is malformed ***/

/* Take the next column.  Return false if there is none. */
static bool
try_column(Reader *reader, PapplyColumn *column)
{
	const char *kind = try_bytes(reader, 1);
	const char *size;

	if (kind == NULL)
		return false;
	column->kind = *kind;
	if (column->kind != LOGICALREP_COLUMN_TEXT && column->kind != LOGICALREP_COLUMN_BINARY)
		return true;
	size = try_bytes(reader, 4);
	if (size == NULL)
		return false;
	column->length = papply_message_get_uint32(size);
	column->data = try_bytes(reader, column->length);
	return column->data != NULL;
}

/* Size of the names, or values, of the columns of a key; the rest is truncated. */
#define KEY_BYTES 256

/* "a, b" and "1, 2" */
typedef struct Key
{
	char		names[KEY_BYTES];
	char		values[KEY_BYTES];
} Key;

static void
append_text(char *list, const char *text)
{
	size_t		used = strlen(list);

	if (used > 0)
		used = strlcat(list, ", ", KEY_BYTES);
	if (used < KEY_BYTES)
		papply_text_copy(list + used, text, KEY_BYTES - used);
}

/*
 * Read the key from the first row of a message, which is the one that
 * identifies the changed row: the new row of an INSERT, and the old row, or
 * its key, of other changes, unless the new row has the same key.
 */
static void
read_key(const LogicalRepRelation *remote, Reader *reader, Key *key)
{
	if (try_bytes(reader, 1 + 2) == NULL)	/* kind of row, number of columns */
		return;
	for (int i = 0; i < remote->natts; i++)
	{
		PapplyColumn column;
		char		value[KEY_BYTES];

		if (!try_column(reader, &column))
			return;
		if (!bms_is_member(i, remote->attkeys))
			continue;
		append_text(key->names, remote->attnames[i]);
		(void) papply_message_show_column(&column, value, sizeof(value));
		append_text(key->values, value);
	}
}

void
papply_message_show_key(const PapplyMessage *message, const LogicalRepRelation *remote,
						char *text, int size)
{
	Reader		reader = begin_reading(message, PAPPLY_MESSAGE_BODY);
	Key			key = {"", ""};
	char		described[sizeof(key) + 16];

	read_key(remote, &reader, &key);
	snprintf(described, sizeof(described), "(%s)=(%s)", key.names, key.values);
	papply_text_copy(text, key.names[0] == '\0' ? NULL : described, size);
}

void
papply_message_add_context(Oid subid, char type, const char *table,
						   TransactionId remote_xid, XLogRecPtr final_lsn)
{
	const char *target = table ? psprintf(" for replication target relation \"%s\"", table) : "";

	errcontext("processing remote data for replication origin \"pg_%u\" during message type \"%s\""
			   "%s in transaction %u, finished at " PAPPLY_LSN_FORMAT,
			   subid, logicalrep_message_type(type), target, remote_xid,
			   LSN_FORMAT_ARGS(final_lsn));
}
