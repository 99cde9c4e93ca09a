/*-------------------------------------------------------------------------
 * selftest_gather.c
 *	  What is in place of the server's functions of a walsender, for t/004_unused.pl, and
 *	  another library's functions over those of gather.c, for t/029_gather.pl.
 *
 * Runs in a walsender or a user's backend, and only in libraries made with SELFTEST=1.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

/* As in gather.c. */
#undef ENABLE_GSS

#include <dlfcn.h>

#include "access/xlog_internal.h"
#include "fmgr.h"
#include "libpq/libpq.h"

#include "selftest.h"

PG_FUNCTION_INFO_V1(papply_selftest_cover_messages);
PG_FUNCTION_INFO_V1(papply_selftest_replaced_functions);

/* selftest_cover_messages(): they do what those below do. */
Datum
papply_selftest_cover_messages(PG_FUNCTION_ARGS)
{
	static PQcommMethods covering;

	covering = *PqCommMethods;
	PqCommMethods = &covering;
	PG_RETURN_VOID();
}

/* Is it a function of this library? */
static int
is_ours(const void *function)
{
	Dl_info		info;
	Dl_info		ours;

	if (dladdr(function, &info) == 0 || dladdr((const void *) papply_selftest_cover_messages, &ours) == 0)
		elog(ERROR, "function is in no file");
	return info.dli_fbase == ours.dli_fbase;
}

/* selftest_replaced_functions(): of those that a walsender calls, how many are ours? */
Datum
papply_selftest_replaced_functions(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(is_ours((const void *) PqCommMethods->putmessage_noblock) +
					is_ours((const void *) PqCommMethods->flush_if_writable) +
					is_ours((const void *) PqCommMethods->is_send_pending) +
					is_ours((const void *) RmgrTable[RM_HEAP_ID].rm_decode) +
					is_ours((const void *) RmgrTable[RM_HEAP2_ID].rm_decode));
}
