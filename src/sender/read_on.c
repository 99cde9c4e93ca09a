/*-------------------------------------------------------------------------
 * read_on.c
 *	  Decode several WAL records before checking for replies.
 *
 * Runs in walsenders for which the setting coalesce_messages is on.
 *
 * WalSndLoop() checks for replies of the client before each WAL record, with a
 * system call.  A small transaction has some ten records, and most of them
 * cost less to decode than that call.  So after a record of a table, the
 * records that follow it in the same WAL page, which the reader already has,
 * are decoded at once.  This ends when something has been sent or must be
 * sent, or after READ_ON_US: then replies are due.  Without a backlog, the end
 * of a transaction is sent when it is put (coalesce.c).  A message of its own
 * and a part of a streamed transaction are not, and the next record may take
 * long to decode, so WalSndLoop() must get to flush them.
 *
 * Decoding goes through RmgrTable, to which the server itself adds the
 * resource managers of extensions.  Our function decodes a record with the
 * server's function, and then reads and decodes further records as
 * XLogSendLogical() does.  It relies on the server's code around it:
 * - A record has been decoded when its resource manager returns.  Only the
 *	 reader stores where reading continues.  So sentPtr advances over all of
 *	 the records.  check_walsender() verifies this.
 * - A walsender is in the states catchup and streaming only while
 *	 XLogSendLogical() reads.  A walsender that creates a slot reads until a
 *	 snapshot is complete, and no further.
 * - If a record cannot be read, the walsender reads it again, and reports the
 *	 error.
 *
 * Without it a subscription with 4 writers catches up with zipfian updates at
 * 0.75 and 0.85 of the rate, and the walsender takes 1.4 times the processor
 * (bench/catchup zipf --coalesce).
 *
 * This code never waits for more WAL, or for standbys that must have received
 * it (17 and later), since the server does that when it reads a page.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "replication/decode.h"
#include "replication/walsender_private.h"

#include "clock.h"
#include "coalesce.h"
#include "modules.h"
#include "test_hooks.h"

/* Decode without checking for replies for this time, longer only for one record. */
#define READ_ON_US 1000

typedef void (*DecodeRecord) (LogicalDecodingContext *ctx, XLogRecordBuffer *buf);

/* The server's functions for RM_HEAP_ID and RM_HEAP2_ID. */
typedef struct Functions
{
	DecodeRecord heap;
	DecodeRecord heap2;
} Functions;

static Functions server;

/* The last record that has been decoded here. */
typedef struct Decoded
{
	XLogRecPtr	start_lsn;
	XLogRecPtr	end_lsn;
	bool		is_reading_on;	/* the following ones are being decoded */
} Decoded;

static Decoded decoded;

static bool
may_read_on(void)
{
	return papply_coalesce_is_on() && !decoded.is_reading_on && papply_coalesce_concerns_us() &&
		(MyWalSnd->state == WALSNDSTATE_CATCHUP || MyWalSnd->state == WALSNDSTATE_STREAMING);
}

static void
note_decoded(const XLogReaderState *reader)
{
	decoded.start_lsn = reader->ReadRecPtr;
	decoded.end_lsn = reader->EndRecPtr;
}

/*
 * If the walsender has read the record that follows the last one decoded here,
 * its position must be between the two.
 */
static void
check_walsender(XLogReaderState *reader)
{
	XLogRecPtr	sent_lsn = MyWalSnd->sentPtr;	/* only this process writes it */

	if (XLogRecGetPrev(reader) == decoded.start_lsn &&
		(sent_lsn < decoded.end_lsn || sent_lsn > reader->ReadRecPtr))
		elog(ERROR, "walsender is at %X/%X instead of %X/%X, up to which records are decoded",
			 LSN_FORMAT_ARGS(sent_lsn), LSN_FORMAT_ARGS(decoded.end_lsn));
}

/* Is the next record complete in the page that the reader has read last? */
static bool
has_next_record(const XLogReaderState *reader)
{
	XLogRecPtr	next = reader->EndRecPtr;
	XLogRecPtr	page;
	uint32		length;

	XLogSegNoOffsetToRecPtr(reader->seg.ws_segno, reader->segoff, reader->segcxt.ws_segsize, page);
	if (next < page || next + SizeOfXLogRecord > page + reader->readLen)
		return false;
	memcpy(&length, reader->readBuf + (next - page) + offsetof(XLogRecord, xl_tot_len),
		   sizeof(length));
	return next + length <= page + reader->readLen;
}

/* Only the record that ends a transaction may take long to decode. */
static bool
is_late(XLogReaderState *reader, int64 began_at)
{
	if (papply_test_is_fast())
		return false;
	return XLogRecGetRmid(reader) == RM_XACT_ID && papply_clock_now() - began_at >= READ_ON_US;
}

static void
read_on(LogicalDecodingContext *ctx)
{
	uint64		flushes = papply_coalesce_flushes();
	int64		began_at = papply_clock_now();
	char	   *error;

	while (has_next_record(ctx->reader) && papply_coalesce_flushes() == flushes &&
		   !papply_coalesce_must_send(ctx->reader->EndRecPtr) &&
		   !is_late(ctx->reader, began_at))
	{
		CHECK_FOR_INTERRUPTS();
		if (XLogReadRecord(ctx->reader, &error) == NULL)
			return;
		LogicalDecodingProcessRecord(ctx, ctx->reader);
		note_decoded(ctx->reader);
	}
}

static void
decode_and_read_on(LogicalDecodingContext *ctx, XLogRecordBuffer *buf)
{
	DecodeRecord decode = XLogRecGetRmid(buf->record) == RM_HEAP_ID ? server.heap : server.heap2;

	if (may_read_on())
		check_walsender(ctx->reader);
	decode(ctx, buf);
	if (!may_read_on())
		return;
	note_decoded(ctx->reader);
	decoded.is_reading_on = true;
	PG_TRY();
	{
		read_on(ctx);
	}
	PG_FINALLY();
	{
		decoded.is_reading_on = false;
	}
	PG_END_TRY();
}

void
papply_read_on_init(void)
{
	server.heap = RmgrTable[RM_HEAP_ID].rm_decode;
	server.heap2 = RmgrTable[RM_HEAP2_ID].rm_decode;
}

static void
replace(RmgrId rmid, DecodeRecord old, DecodeRecord new)
{
	if (RmgrTable[rmid].rm_decode == old)
		RmgrTable[rmid].rm_decode = new;
}

void
papply_read_on_switch(bool is_on)
{
	if (is_on)
	{
		replace(RM_HEAP_ID, server.heap, decode_and_read_on);
		replace(RM_HEAP2_ID, server.heap2, decode_and_read_on);
	}
	else
	{
		replace(RM_HEAP_ID, decode_and_read_on, server.heap);
		replace(RM_HEAP2_ID, decode_and_read_on, server.heap2);
	}
}
