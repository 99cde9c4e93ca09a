/*-------------------------------------------------------------------------
 * selftest_wakes.c
 *	  Settings for tests that force what otherwise depends on time, or on a machine.
 *
 * Runs in every process, and only in libraries made with SELFTEST=1.
 *
 * A sleeping process checks from time to time: a writer, whether an older transaction
 * waits for it; the core apply loop, whether something is due.  It then also notices what
 * it should have been woken for, which hides a lost wake-up.  With selftest_sleep, writers
 * continue to sleep.  With selftest_receiver_sleeps, so does a receiver, before it lets the
 * core apply loop sleep, unless a time is set for what it will do next.
 *
 * All these waits are counted for each process.  A process that waits in vain, because it
 * is woken all the time or does not sleep, has more and more of them.
 *
 * With selftest_defer_flushes, flushes that no session is known to wait for are deferred
 * for ever, instead of some milliseconds.
 *
 * A receiver that finds the connection empty reports to the publisher.  With
 * selftest_read_on it reads again until a transaction has arrived completely.  So a reply
 * within the transaction is one that was sent because it was due, however busy the machine
 * is and however slowly the messages come.
 *
 * A receiver that reads nothing reports to the publisher after a second, or earlier if the
 * timeouts require that.  With selftest_silent, only the timeouts count, so a test may use
 * timeouts that are longer than any stall of a machine.
 *
 * How many transactions a writer claims, whether the receiver applies a leader
 * transaction, and whether a walsender keeps a message or decodes further records
 * depends on times that are measured.  With selftest_fast, all of this is
 * decided as if nothing took any time.
 *
 * With selftest_server_functions, which must be set before the library is loaded, another
 * library seems to have given the apply worker the server's functions back.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/wait_event.h"

#include "pool.h"
#include "slots.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_waits);

static int	writer_sleep_ms = 0;	/* 0: as usual */
static bool receiver_sleeps = false;
static bool defers_flushes = false;
static bool is_silent = false;
static bool is_fast = false;
bool		papply_selftest_read_on = false;
bool		papply_selftest_server_functions = false;
int			papply_selftest_watch_us = 0;
int			papply_selftest_watched_us = 0;

static void
define_switch(const char *name, const char *description, bool *value, GucContext context)
{
	DefineCustomBoolVariable(name, description, NULL, value, false, context,
							 GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
}

void
papply_selftest_define_settings(void)
{
	DefineCustomIntVariable(PAPPLY_NAME ".selftest_sleep",
							"Sets the time after which a waiting writer checks its condition without being woken.",
							"0 is as usual.",
							&writer_sleep_ms,
							0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);
	papply_selftest_define_delays();
	define_switch(PAPPLY_NAME ".selftest_receiver_sleeps",
				  "Lets a receiver sleep until it is woken.",
				  &receiver_sleeps, PGC_SIGHUP);
	define_switch(PAPPLY_NAME ".selftest_defer_flushes",
				  "Defers flushes until a session is known to wait for them.",
				  &defers_flushes, PGC_SIGHUP);
	define_switch(PAPPLY_NAME ".selftest_silent",
				  "Lets a receiver be silent for as long as timeouts permit.",
				  &is_silent, PGC_SIGHUP);
	define_switch(PAPPLY_NAME ".selftest_fast",
				  "Takes no account of the time that transactions and messages need.",
				  &is_fast, PGC_SIGHUP);
	define_switch(PAPPLY_NAME ".selftest_read_on",
				  "Lets a receiver poll for the rest of a transaction.",
				  &papply_selftest_read_on, PGC_SIGHUP);
	define_switch(PAPPLY_NAME ".selftest_server_functions",
				  "Leaves the server's functions for connections in place.",
				  &papply_selftest_server_functions, PGC_POSTMASTER);
}

long
papply_test_wait_ms(long timeout_ms)
{
	papply_test_count_wait();
	return timeout_ms >= 0 && writer_sleep_ms > 0 ? writer_sleep_ms : timeout_ms;
}

void
papply_test_count_wait(void)
{
	if (papply_pool != NULL)
		pg_atomic_fetch_add_u64(&papply_pool->test.waits[papply_pool_waiter], 1);
}

uint64
papply_selftest_sleeps(void)
{
	return pg_atomic_read_u64(&papply_pool->test.waits[papply_pool_waiter]);
}

void
papply_test_count_sleep(bool is_long, bool is_timeout)
{
	if (papply_pool == NULL)
		return;
	if (is_long)
		pg_atomic_fetch_add_u64(&papply_pool->test.long_sleeps, 1);
	else if (is_timeout)
		pg_atomic_fetch_add_u64(&papply_pool->test.timeouts, 1);
}

/* Leave the latch as it is: the core apply loop is about to wait for the same. */
void
papply_test_wait_for(pgsocket socket)
{
	papply_test_count_wait();
	if (receiver_sleeps && papply_pool != NULL)
		(void) WaitLatchOrSocket(MyLatch,
								 WL_LATCH_SET | WL_SOCKET_READABLE | WL_EXIT_ON_PM_DEATH,
								 socket, -1, PG_WAIT_EXTENSION);
}

bool
papply_test_waits_in_core_loop(void)
{
	return receiver_sleeps;
}

long
papply_test_defer_ms(long defer_ms)
{
	return defers_flushes ? INT_MAX : defer_ms;
}

int
papply_test_silence_ms(int silence_ms)
{
	return is_silent ? INT_MAX : silence_ms;
}

bool
papply_test_is_fast(void)
{
	return is_fast;
}

int
papply_test_watch_us(int watch_us)
{
	papply_selftest_watched_us = watch_us;
	return papply_selftest_watch_us > 0 ? papply_selftest_watch_us : watch_us;
}

/*
 * selftest_waits(subscription): how often the receiver, and each writer, has waited; how
 * many of the receiver's own sleeps were long; and how many others were ended by time
 */
Datum
papply_selftest_waits(PG_FUNCTION_ARGS)
{
	StringInfoData counts;
	PapplySubscriptionSlot *slot;

	initStringInfo(&counts);
	papply_slots_lock(LW_SHARED);
	slot = papply_slots_find(PG_GETARG_OID(0));
	for (int i = PAPPLY_WAITER_RECEIVER; slot != NULL && i >= 0; i--)
	{
		uint64		count = pg_atomic_read_u64(&slot->pool.test.waits[i]);

		if (count > 0)
			appendStringInfo(&counts, "%d: " UINT64_FORMAT ", ", i, count);
	}
	if (slot != NULL)
		appendStringInfo(&counts, "long: " UINT64_FORMAT ", timeouts: " UINT64_FORMAT,
						 pg_atomic_read_u64(&slot->pool.test.long_sleeps),
						 pg_atomic_read_u64(&slot->pool.test.timeouts));
	papply_slots_unlock();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(counts.data, counts.len));
}
