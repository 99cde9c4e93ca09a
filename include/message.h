/*-------------------------------------------------------------------------
 * message.h
 *	  Messages of the logical replication protocol, fields located in place.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_MESSAGE_H
#define PAPPLY_MESSAGE_H

#include "access/htup_details.h"
#include "access/xlogdefs.h"
#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"
#include "replication/logicalproto.h"

#include "parallel_apply.h"

/*
 * Bytes before the message in a result of walrcv_receive(): 'w', start, end,
 * time.  A keepalive is 'k', end, time, and whether a reply is requested.
 */
#define PAPPLY_MESSAGE_HEADER 25
#define PAPPLY_MESSAGE_KEEPALIVE 18

/*
 * A message of the protocol, in place.  What follows id is the body, and has a
 * different form for each kind.
 */
typedef struct PapplyMessage
{
	char	   *data;			/* the whole message; NULL: none */
	int			length;
	char		kind;			/* LOGICAL_REP_MSG_…, its first byte; 0 if
								 * it is empty */
	uint32		id;				/* the next four bytes; 0 if it is shorter.
								 * OID of the relation, in a change of one and
								 * in RELATION; xid, in a stream; number of
								 * relations, in TRUNCATE */
} PapplyMessage;

#define PAPPLY_MESSAGE_BODY (1 + (int) sizeof(uint32))

/* A result of walrcv_receive(). */
typedef struct PapplyReceived
{
	char		type;			/* 'w': with a message; 'k': keepalive; 0:
								 * neither, or too short */
	XLogRecPtr	lsn;			/* only with 'w': of what the message comes
								 * from */
	XLogRecPtr	end_lsn;		/* up to which the publisher has sent */
	TimestampTz send_time;
	bool		requests_reply; /* only with 'k' */
	PapplyMessage message;
} PapplyReceived;

/* A column as it was sent.  data points into the message. */
typedef struct PapplyColumn
{
	char		kind;			/* LOGICALREP_COLUMN_… */
	int			length;
	char	   *data;
} PapplyColumn;

typedef struct PapplyTuple
{
	int			ncolumns;
	PapplyColumn columns[MaxTupleAttributeNumber];
} PapplyTuple;

/* INSERT, UPDATE or DELETE. */
typedef struct PapplyChange
{
	char		type;			/* LOGICAL_REP_MSG_… */
	LogicalRepRelId remote_relid;
	bool		has_old;
	bool		has_new;
	PapplyTuple old_tuple;
	PapplyTuple new_tuple;
} PapplyChange;

/*
 * The end of a transaction: COMMIT, PREPARE, COMMIT PREPARED, ROLLBACK PREPARED,
 * or the COMMIT or PREPARE of a streamed one.
 */
typedef struct PapplyCommit
{
	char		type;			/* LOGICAL_REP_MSG_… */
	TransactionId xid;			/* not in a COMMIT */
	XLogRecPtr	commit_lsn;		/* LSN of the record that ends it; for a
								 * rollback, its end LSN */
	XLogRecPtr	end_lsn;
	TimestampTz commit_time;

	/* ROLLBACK PREPARED only, about the prepared transaction */
	XLogRecPtr	prepare_end_lsn;
	TimestampTz prepare_time;
} PapplyCommit;

/* BEGIN or BEGIN PREPARE, or what takes its place: papply_message_parse_first(). */
typedef struct PapplyBegin
{
	XLogRecPtr	final_lsn;
	TimestampTz commit_time;
	TransactionId xid;
	XLogRecPtr	end_lsn;		/* of the transaction, if this message is also
								 * its last one; else invalid */
} PapplyBegin;

/* Does a message of this kind begin a chunk of a streamed transaction, or end all of it? */
static inline bool
papply_message_is_of_stream(char kind)
{
	return kind == LOGICAL_REP_MSG_STREAM_START || kind == LOGICAL_REP_MSG_STREAM_ABORT ||
		kind == LOGICAL_REP_MSG_STREAM_COMMIT || kind == LOGICAL_REP_MSG_STREAM_PREPARE;
}

/* Is a message of this kind a change of one or more tables? */
static inline bool
papply_message_is_change(char kind)
{
	return kind == LOGICAL_REP_MSG_INSERT || kind == LOGICAL_REP_MSG_UPDATE ||
		kind == LOGICAL_REP_MSG_DELETE || kind == LOGICAL_REP_MSG_TRUNCATE;
}

/* Read integers in network byte order, at any address. */
static inline uint32
papply_message_get_uint32(const char *data)
{
	uint32		value;

	memcpy(&value, data, sizeof(value));
	return pg_ntoh32(value);
}

static inline uint64
papply_message_get_uint64(const char *data)
{
	uint64		value;

	memcpy(&value, data, sizeof(value));
	return pg_ntoh64(value);
}

/* Throw an error: the publisher must not send this message. */
PAPPLY_NORETURN extern void papply_message_malformed(void) pg_attribute_cold;

/* Read the kind and the id of a message. */
static inline PapplyMessage
papply_message_read(char *data, int length)
{
	return (PapplyMessage)
	{
		.data = data,
			.length = length,
			.kind = length > 0 ? data[0] : 0,
			.id = length >= PAPPLY_MESSAGE_BODY ? papply_message_get_uint32(data + 1) : 0
	};
}

static inline bool
papply_message_is_equal(const PapplyMessage *a, const PapplyMessage *b)
{
	return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
}

/* Read a result of walrcv_receive().  Fields that its type does not have are not set. */
static inline PapplyReceived
papply_message_open(char *buffer, int length)
{
	PapplyReceived received;

	received.type = received.message.kind = 0;
	if (buffer[0] == 'w' && length >= PAPPLY_MESSAGE_HEADER)
	{
		received.type = 'w';
		received.lsn = papply_message_get_uint64(buffer + 1);
		received.end_lsn = papply_message_get_uint64(buffer + 9);
		received.send_time = papply_message_get_uint64(buffer + 17);
		received.message = papply_message_read(buffer + PAPPLY_MESSAGE_HEADER,
											   length - PAPPLY_MESSAGE_HEADER);
	}
	else if (buffer[0] == 'k' && length >= PAPPLY_MESSAGE_KEEPALIVE)
	{
		received.type = 'k';
		received.end_lsn = papply_message_get_uint64(buffer + 1);
		received.send_time = papply_message_get_uint64(buffer + 9);
		received.requests_reply = buffer[17] != 0;
	}
	return received;
}

/*
 * Return the xid of what is rolled back, in STREAM ABORT: the transaction, id,
 * or a subtransaction of it.
 */
static inline TransactionId
papply_message_subxid(const PapplyMessage *message)
{
	if (message->length < PAPPLY_MESSAGE_BODY + (int) sizeof(TransactionId))
		papply_message_malformed();
	return papply_message_get_uint32(message->data + PAPPLY_MESSAGE_BODY);
}

/* Return how many relations a TRUNCATE is of; 0 if it is malformed. */
static inline uint32
papply_message_truncated(const PapplyMessage *message)
{
	uint64		length = PAPPLY_MESSAGE_BODY + 1 + (uint64) message->id * sizeof(LogicalRepRelId);

	return length <= (uint64) message->length ? message->id : 0;
}

/* Return the OID of one of them; they follow the options. */
static inline LogicalRepRelId
papply_message_truncated_relid(const PapplyMessage *message, uint32 i)
{
	return papply_message_get_uint32(message->data + PAPPLY_MESSAGE_BODY + 1 +
									 i * sizeof(LogicalRepRelId));
}

/*
 * Locate the fields of a message.  They throw ERRCODE_PROTOCOL_VIOLATION if its
 * format is wrong.
 */
static inline void
papply_message_parse_begin(const PapplyMessage *message, PapplyBegin *begin)
{
	/* of a prepared transaction, an end position comes before the time */
	const char *time = message->data + (message->kind == LOGICAL_REP_MSG_BEGIN_PREPARE ? 17 : 9);

	if (time + 12 > message->data + message->length ||
		papply_message_get_uint64(message->data + 1) == InvalidXLogRecPtr ||
		papply_message_get_uint64(time - 8) == InvalidXLogRecPtr)
		papply_message_malformed();
	begin->final_lsn = papply_message_get_uint64(message->data + 1);
	begin->commit_time = papply_message_get_uint64(time);
	begin->xid = papply_message_get_uint32(time + 8);
	begin->end_lsn = InvalidXLogRecPtr;
}

/* Return only the end LSN of a COMMIT or PREPARE: flags, two positions, time. */
static inline XLogRecPtr
papply_message_end_lsn(const PapplyMessage *message)
{
	if (message->length < 26 || message->data[1] != 0 ||
		papply_message_get_uint64(message->data + 2) == InvalidXLogRecPtr ||
		papply_message_get_uint64(message->data + 10) == InvalidXLogRecPtr)
		papply_message_malformed();
	return papply_message_get_uint64(message->data + 10);
}

extern void papply_message_parse_commit(const PapplyMessage *message, PapplyCommit *commit);
extern void papply_message_parse_change(const PapplyMessage *message, PapplyChange *change);

/*
 * Get the same from the first message of a transaction that is not part of a
 * stream: BEGIN, or the message that ends a streamed transaction, or one that
 * was prepared.  Return false for any other message.
 */
extern bool papply_message_parse_first(const PapplyMessage *message, PapplyBegin *begin);

/* Return what a RELATION says, in the current memory context. */
extern LogicalRepRelation *papply_message_read_relation(const char *message, int length);

/* Return the remote OIDs of the tables that a TRUNCATE is of, in a new list. */
extern List *papply_message_read_truncate(char *message, int length, bool *cascade,
										  bool *restart_sequences);

/*
 * Empty a buffer that lives as long as the process.  Free it if it has grown
 * for a huge message.
 */
extern void papply_message_reset_buffer(StringInfo buf);

/*
 * Add a zero byte after every text column, as input functions require it.  The
 * message must be in private memory with one byte to spare, and cannot be
 * parsed again.
 */
extern void papply_message_terminate_columns(PapplyTuple *tuple);

/*
 * Write a column into buffer, for messages and views: a value in binary format
 * as a bytea is written, "null", or "?" if the message does not contain it.
 * It is truncated to size bytes with the terminating zero byte, and before the
 * first character that is not valid.  Returns its length.
 */
extern int	papply_message_show_column(const PapplyColumn *column, char *buffer, int size);

/*
 * Describe the key of the row that an INSERT, UPDATE or DELETE changes, as
 * "(id)=(1)", truncated to size; empty if it is not known.  Throws no error.
 */
extern void papply_message_show_key(const PapplyMessage *message, const LogicalRepRelation *remote,
									char *text, int size);

/*
 * For error context callbacks: describe the processing of a message as
 * PostgreSQL's apply worker does.  table is "schema.table" on the publisher, or
 * NULL.
 */
extern void papply_message_add_context(Oid subid, char type, const char *table,
									   TransactionId remote_xid, XLogRecPtr final_lsn);

/*** texts, which need not be valid in this encoding ***/

/*
 * Return how many bytes of a text of length bytes, up to limit, are whole and
 * valid characters.  What comes from a publisher need not be valid.
 */
static inline int
papply_text_clip(const char *source, int length, int limit)
{
	return pg_encoding_verifymbstr(GetDatabaseEncoding(), source, Min(length, limit));
}

/*
 * Copy as much of source as size bytes of target hold, in whole and valid
 * characters and with the terminating zero byte.  NULL is copied as the empty
 * string.
 */
static inline void
papply_text_copy(char *target, const char *source, int size)
{
	int			length = source ? papply_text_clip(source, strlen(source), size - 1) : 0;

	memcpy(target, source ? source : "", length);
	target[length] = '\0';
}

#endif							/* PAPPLY_MESSAGE_H */
