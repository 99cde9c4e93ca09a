/*-------------------------------------------------------------------------
 * origin.c
 *	  The replication origin of a subscription that has a pool.
 *
 * Runs in the receiver and in writers.
 *
 * Since PostgreSQL 16 all processes of a pool share the session of the origin,
 * and these functions do nothing.  Up to 15 one process at a time owns the
 * session, the one whose turn it is.  Between two owners the server lets users
 * move the origin (pg_replication_origin_advance()), which it refuses while
 * PostgreSQL's own apply runs.  If the origin was moved forward, transactions
 * would be missing after the next start.  So the process that releases the
 * session stores the position of the origin.  The process that takes the
 * session, and the receiver while nothing is in flight, check whether the
 * position is still the same.  If it is not, they move it back.  The process
 * then ends with an error, and so does the apply worker.
 *
 * If the server crashes after the origin was moved and before this is noticed,
 * the origin stays where it was moved to.
 *
 * Locking: the owner of the session writes the position, and the next owner
 * reads it.  Between the two is the server's lock on the session, or a turn in
 * the commit order.
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
	XLogFlush(XactLastRecEnd);	/* the other move may have been flushed */
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

	if (PAPPLY_ORIGIN_IS_SHARED)
		return;
	papply_compat_origin_setup(papply_pool->origin.id, 0);
	lsn = replorigin_session_get_progress(false);
	if (lsn == papply_pool->origin.lsn)
		return;
	replorigin_session_reset();
	move_back(papply_pool->origin.id, papply_pool->origin.lsn, lsn, FATAL);
}

void
papply_origin_pass_on(void)
{
	if (PAPPLY_ORIGIN_IS_SHARED)
		return;
	papply_pool->origin.lsn = replorigin_session_get_progress(false);
	replorigin_session_reset();
	PAPPLY_SESSION_ORIGIN = PAPPLY_NO_ORIGIN;
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
