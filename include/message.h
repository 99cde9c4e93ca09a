/*-------------------------------------------------------------------------
 * room: pool
 *
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
#include "port/pg_bswap.h"
#include "replication/logicalproto.h"

#include "parallel_apply.h"

/* Before a message of the protocol in one of walrcv_receive(): 'w', start, end, time. */
#define PAPPLY_MESSAGE_HEADER 25

/* A column as it was sent; data points into the message. */
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
	XLogRecPtr	commit_lsn;		/* of what ends it; the end of a rollback */
	XLogRecPtr	end_lsn;
	TimestampTz commit_time;

	/* ROLLBACK PREPARED: of what was prepared */
	XLogRecPtr	prepare_end_lsn;
	TimestampTz prepare_time;
} PapplyCommit;

/* BEGIN or BEGIN PREPARE. */
typedef struct PapplyBegin
{
	XLogRecPtr	final_lsn;
	TimestampTz commit_time;
	TransactionId xid;
} PapplyBegin;

/* Integers are in network order, at any address. */
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

/* Throw: the publisher must not send that. */
extern void papply_message_malformed(void);

/*
 * Locate the fields of a whole message (kind byte included).  They throw
 * ERRCODE_PROTOCOL_VIOLATION when it does not have that form.
 */
extern void papply_message_parse_begin(char *data, int length, PapplyBegin *begin);
extern void papply_message_parse_commit(char *data, int length, PapplyCommit *commit);

/*
 * When a transaction was committed (or prepared, or that was ended) on the
 * publisher, if this is the first message of it that is not streamed; else 0.
 */
extern TimestampTz papply_message_commit_time(char *data, int length);
extern void papply_message_parse_change(char *data, int length, PapplyChange *change);

/*
 * Empty a buffer that lives as long as the process; one that has grown for a
 * huge message is given back.
 */
extern void papply_message_reset_buffer(StringInfo buf);

/*
 * Put a zero byte behind every text column, as input functions want it.  The
 * message must be in private memory with one byte to spare, and cannot be
 * parsed again.
 */
extern void papply_message_terminate_columns(PapplyTuple *tuple);

/*
 * For error context callbacks: describe, as the native worker does, the work on
 * a message; table is "schema.table" on the publisher or NULL.
 */
extern void papply_message_add_context(Oid subid, char type, const char *table,
									   TransactionId remote_xid, XLogRecPtr final_lsn);

#endif							/* PAPPLY_MESSAGE_H */
