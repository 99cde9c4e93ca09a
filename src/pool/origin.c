/*-------------------------------------------------------------------------
 * origin.c
 *	  The replication origin of a subscription that has a pool, as it goes round.
 *
 * Runs in the receiver and in writers.
 *
 * From PostgreSQL 16 on all of them share its session, and nothing is to be done.  Up to
 * 15 one process at a time has it: whose turn it is.  In between nobody does, and the
 * server lets a user move the origin (pg_replication_origin_advance()), which it
 * refuses while PostgreSQL's own apply runs.  Moved forward, transactions would be
 * missing after the next start.  So who passes the session on leaves the position that the
 * origin has; who takes it, and the receiver while nothing is in flight, looks
 * whether that is still there.  If not it is moved back, and the process ends
 * with an error, and with it the apply worker.
 *
 * A server that crashes after the origin was moved, and before that is noticed, has it
 * where it was moved to.
 *
 * Locking: the position is written by whoever has the session, and read by the next one;
 * the server's lock on the session is between the two, or a turn in the commit order.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xlog.h"

#include "origin.h"
#include "pool.h"

static void
move_back(PapplyOriginId origin, XLogRecPtr lsn, XLogRecPtr moved_to, int elevel)
{
	replorigin_advance(origin, lsn, InvalidXLogRecPtr, true, true);
	XLogFlush(GetXLogInsertRecPtr());	/* as the move may have been */
	ereport(elevel,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("replication origin of subscription \"%s\" was moved from "
					PAPPLY_LSN_FORMAT " to " PAPPLY_LSN_FORMAT " while it was in use",
					MySubscription->name, LSN_FORMAT_ARGS(lsn), LSN_FORMAT_ARGS(moved_to)),
			 errdetail("It has been moved back."),
			 errhint("Disable the subscription before you move its replication origin.")));
}

void
papply_origin_take(void)
{
	XLogRecPtr	lsn;

	papply_compat_origin_take(papply_pool->origin);
	if (PAPPLY_ORIGIN_IS_SHARED)
		return;
	lsn = replorigin_session_get_progress(false);
	if (lsn == papply_pool->origin_lsn)
		return;
	papply_compat_origin_pass_on();
	move_back(papply_pool->origin, papply_pool->origin_lsn, lsn, FATAL);
}

void
papply_origin_pass_on(void)
{
	if (PAPPLY_ORIGIN_IS_SHARED)
		return;
	papply_pool->origin_lsn = replorigin_session_get_progress(false);
	papply_compat_origin_pass_on();
}

void
papply_origin_check(PapplyOriginId origin, XLogRecPtr lsn, int elevel)
{
	XLogRecPtr	now_lsn;

	if (PAPPLY_ORIGIN_IS_SHARED)
		return;
	now_lsn = replorigin_get_progress(origin, false);
	if (now_lsn != lsn)
		move_back(origin, lsn, now_lsn, elevel);
}
