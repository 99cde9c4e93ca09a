/*-------------------------------------------------------------------------
 * selftest_wakes.c
 *	  A setting for t/059_wakes.pl.
 *
 * Runs in every process, and only in libraries made with SELFTEST=1.
 *
 * A sleeping writer checks from time to time whether an older transaction waits for it.
 * It then also notices what it should have been woken for, which hides a lost wake-up.
 * With this setting it does not check, and continues to sleep.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/guc.h"

#include "selftest.h"

int			papply_selftest_sleep = 0;

void
papply_selftest_define_settings(void)
{
	DefineCustomIntVariable(PAPPLY_NAME ".selftest_sleep",
							"Sets the time after which a writer looks by itself whether it can go on.",
							"0 is as usual.",
							&papply_selftest_sleep,
							0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);
}
