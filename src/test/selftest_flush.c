/*-------------------------------------------------------------------------
 * selftest_flush.c
 *	  Test flushes and reports without a publisher, for sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *
 * A test of t/ calls selftest_hold_flush().
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "replication/syncrep.h"
#include "utils/builtins.h"

#include "../receiver/feedback.h"
#include "../receiver/lifecycle.h"
#include "../receiver/core_loop.h"
#include "message.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_feedback);
PG_FUNCTION_INFO_V1(papply_selftest_status);
PG_FUNCTION_INFO_V1(papply_selftest_hold_flush);
PG_FUNCTION_INFO_V1(papply_selftest_idle);

/*
 * selftest_feedback(is_idle, has_standby): the received, flushed and applied
 * positions that are reported to the publisher, when 500 was received, 100 is
 * committed and flushed, and 200 is committed and not flushed; a standby has
 * neither.
 */
Datum
papply_selftest_feedback(PG_FUNCTION_ARGS)
{
	const char	message[34] = {'r'};
	const char *status;
	XLogRecPtr	start_lsn = papply_feedback_received_lsn() + 1000;
	XLogRecPtr	local_lsn = GetFlushRecPtr(NULL);
	char	   *save_names = SyncRepStandbyNames;
	uint64		reported[3];

	papply_feedback_reset(start_lsn);
	papply_feedback_received(start_lsn + 500);
	for (int i = 0; i < 2000; i++)	/* more than there are places for */
		papply_feedback_committed(start_lsn + 100, local_lsn);
	papply_feedback_committed(start_lsn + 200, local_lsn + (UINT64CONST(1) << 40));
	if (PG_GETARG_BOOL(1))
		SyncRepStandbyNames = "standby";
	status = papply_feedback_rewrite(message, sizeof(message), PG_GETARG_BOOL(0));
	SyncRepStandbyNames = save_names;
	for (int i = 0; i < 3; i++)
		reported[i] = papply_message_get_uint64(status + 1 + 8 * i) - start_lsn;
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("received " UINT64_FORMAT ", flushed " UINT64_FORMAT
											  ", applied " UINT64_FORMAT,
											  reported[0], reported[1], reported[2])));
}

/*
 * selftest_status(kind, length, ahead): is a message of that kind and length left as it
 * is?  Its sender is that many bytes ahead of what is applied, which is nothing.
 */
Datum
papply_selftest_status(PG_FUNCTION_ARGS)
{
	char		message[64] = {PG_GETARG_CHAR(0)};

	message[8] = PG_GETARG_INT32(2);	/* the last byte of its first position */

	PG_RETURN_BOOL(papply_feedback_rewrite(message, PG_GETARG_INT32(1), false) == message);
}

static void
drive_idle(void *model)
{
	char		data[] = {LOGICAL_REP_MSG_MESSAGE};
	PapplyMessage message = papply_message_read(data, sizeof(data));
	XLogRecPtr	remote_end_lsn;
	XLogRecPtr	local_end_lsn;
	char	   *buffer;
	Subscription subscription = {0};

	MySubscription = &subscription; /* nothing is to be skipped */
	EXPECT(papply_lifecycle_is_idle());
	papply_core_loop_begin_direct(PAPPLY_NO_ORIGIN, false);
	EXPECT(!papply_lifecycle_is_idle());
	EXPECT(papply_core_loop_before(&message, &buffer) == 0);
	EXPECT(!papply_lifecycle_is_idle());
	EXPECT(papply_core_loop_is_ended());
	papply_core_loop_finish(&remote_end_lsn, &local_end_lsn);
	EXPECT(papply_lifecycle_is_idle());
	MySubscription = NULL;
}

/*
 * selftest_idle(): what was received does not count as committed while the
 * core apply loop has a transaction that is not in the queue.
 */
Datum
papply_selftest_idle(PG_FUNCTION_ARGS)
{
	papply_selftest_with_queue(64, drive_idle, NULL);
	PG_RETURN_VOID();
}

/* selftest_hold_flush(key): no WAL is flushed until that advisory lock is free. */
Datum
papply_selftest_hold_flush(PG_FUNCTION_ARGS)
{
	LWLockAcquire(WALWriteLock, LW_EXCLUSIVE);
	DirectFunctionCall1(pg_advisory_lock_int8, PG_GETARG_DATUM(0));
	LWLockRelease(WALWriteLock);
	PG_RETURN_VOID();
}
