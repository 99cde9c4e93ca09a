/*-------------------------------------------------------------------------
 * selftest_gather.c
 *	  Another library's functions over those of gather.c, for t/029_gather.pl.
 *
 * Runs in a walsender, and only in libraries made with SELFTEST=1.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

/* As in gather.c. */
#undef ENABLE_GSS

#include "fmgr.h"
#include "libpq/libpq.h"

#include "selftest.h"

PG_FUNCTION_INFO_V1(papply_selftest_cover_messages);

/* selftest_cover_messages(): they do what those below do. */
Datum
papply_selftest_cover_messages(PG_FUNCTION_ARGS)
{
	static PQcommMethods covering;

	covering = *PqCommMethods;
	PqCommMethods = &covering;
	PG_RETURN_VOID();
}
