/*-------------------------------------------------------------------------
 * reorder.c
 *	  May a local transaction differ from one remote transaction in its order?
 *
 * Runs in a writer.
 *
 * It may not if it may be decoded (decoding.c).  A logical slot that is
 * created later does not decode it if the transaction has an xid by then.  So
 * the transaction gets an xid before the slots are checked, and they are
 * checked only once.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"

#include "decoding.h"
#include "reorder.h"

/* The answer for the range that is being applied. */
typedef struct Answer
{
	bool		is_known;
	bool		is_allowed;
} Answer;

static Answer answer;

void
papply_reorder_begin_range(void)
{
	answer.is_known = false;
}

static bool
ask_decoding(void)
{
	if (papply_decoding_is_impossible())
		return true;
	if (papply_decoding_is_possible())
		return false;			/* without assigning an xid */
	(void) GetCurrentTransactionId();
	return !papply_decoding_is_possible();
}

bool
papply_reorder_is_allowed(void)
{
	if (!answer.is_known)
		answer.is_allowed = ask_decoding();
	answer.is_known = true;
	return answer.is_allowed;
}

void
papply_reorder_check_batch(void)
{
	if (!papply_reorder_is_allowed())
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg_internal("transactions that may be decoded are not applied together")));
}
