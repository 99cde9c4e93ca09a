/*-------------------------------------------------------------------------
 * single_session.c
 *	  Only the receiver's session runs user code any more.
 *
 * Runs in the receiver and in writers.
 *
 * PostgreSQL's own apply has only one session.  What user code leaves there can
 * be found by user code of later transactions: advisory locks
 * (session_locks.c), settings and temporary tables (session_settings.c), and
 * numbers that were fetched from a sequence (session_sequences.c).  Each writer
 * has a session of its own.
 *
 * So a writer that finds such a thing at the end of a transaction rolls back,
 * and leaves the transaction to the core apply loop.  From then on, until the
 * apply worker ends, all transactions that run user code are left to it:  it
 * is not known which code takes, finds or releases what.  They are never
 * applied together with others anyway.  What the code does outside of its
 * transaction, such as calling nextval(), is repeated only for the
 * transactions that were being applied when this began.
 *
 * Locking: single_session is only ever set.  A writer that reads an older
 * value finds what its own transaction has left.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "pool.h"
#include "single_session.h"

static bool was_on = false;		/* receiver: in its last pool */

bool
papply_single_session_begin(void)
{
	return pg_atomic_exchange_u32(&papply_pool->single_session, true) == 0;
}

void
papply_single_session_carry_over(void)
{
	was_on = papply_single_session_is_on();
}

void
papply_single_session_resume(void)
{
	if (was_on)
		(void) papply_single_session_begin();
}

bool
papply_single_session_is_on(void)
{
	return pg_atomic_read_u32(&papply_pool->single_session) != 0;
}

void
papply_single_session_check(void)
{
	if (papply_single_session_is_on())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("user code is left to the apply worker")));
}
