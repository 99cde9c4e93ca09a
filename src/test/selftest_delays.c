/*-------------------------------------------------------------------------
 * selftest_delays.c
 *	  A setting with which processes are woken late.
 *
 * Runs in every process, and only in libraries made with SELFTEST=1.
 *
 * With selftest_delay_wakes, a process sleeps for a random time before it wakes another one,
 * as if the kernel ran something else then.  `tools/check_load` runs all tests with it: none
 * may depend on how soon a process is woken.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "test_hooks.h"

#include "common/pg_prng.h"
#include "utils/guc.h"


static int	greatest_delay_ms = 0;

void
papply_selftest_define_delays(void)
{
	DefineCustomIntVariable(PAPPLY_NAME ".selftest_delay_wakes",
							"Sets the greatest time that a process sleeps before it wakes another one.",
							NULL,
							&greatest_delay_ms,
							0, 0, 1000,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);
}

void
papply_test_delay_wake(void)
{
	if (greatest_delay_ms > 0)
	{
		long		pause_us = pg_prng_uint64_range(&pg_global_prng_state, 0,
													greatest_delay_ms * 1000);

		pg_usleep(pause_us);
	}
}
