/*-------------------------------------------------------------------------
 * selftest_coalesce.c
 *	  What is in place of the server's functions of a walsender, and another library's
 *	  functions over those of coalesce.c, for t/publisher/coalesce_roles.pl.
 *
 * Runs in a walsender or a user's backend, and only in libraries made with SELFTEST=1.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "test_hooks.h"

/* As in coalesce.c. */
#undef ENABLE_GSS

#include <dlfcn.h>

#include "access/xlog_internal.h"
#include "fmgr.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "port/pg_bswap.h"
#include "replication/slot.h"
#include "storage/latch.h"
#include "storage/spin.h"
#include "utils/wait_event.h"


PG_FUNCTION_INFO_V1(papply_selftest_cover_messages);
PG_FUNCTION_INFO_V1(papply_selftest_replaced_functions);

/* The functions below the other library's */
static const PQcommMethods *covered;

/* Has the slot "standby" got that far?  Without that slot there is no standby. */
static bool
standby_has(XLogRecPtr lsn)
{
	ReplicationSlot *slot = SearchNamedReplicationSlot("standby", true);
	XLogRecPtr	confirmed_lsn;

	if (slot == NULL)
		return true;
	SpinLockAcquire(&slot->mutex);
	confirmed_lsn = slot->data.restart_lsn;
	SpinLockRelease(&slot->mutex);
	return confirmed_lsn >= lsn;
}

/* A change waits until the standby has it, as in pg_failover_slots. */
static void
wait_and_put(char type, const char *data, size_t size)
{
	uint64		lsn = 0;

	if (type == 'd' && size > 1 + sizeof(lsn) && data[0] == 'w')
		memcpy(&lsn, data + 1, sizeof(lsn));
	while (!standby_has(pg_ntoh64(lsn)))
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 10,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	covered->putmessage_noblock(type, data, size);
}

/* selftest_cover_messages(): put another library's functions in place, in this process. */
Datum
papply_selftest_cover_messages(PG_FUNCTION_ARGS)
{
	static PQcommMethods covering;

	covered = PqCommMethods;
	covering = *covered;
	covering.putmessage_noblock = wait_and_put;
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
