/*-------------------------------------------------------------------------
 * selftest_wakes.c
 *	  Settings for t/007_server_functions.pl, t/045_protocol.pl and t/059_wakes.pl.
 *
 * Runs in every process, and only in libraries made with SELFTEST=1.
 *
 * A sleeping writer checks from time to time whether an older transaction waits for it.
 * It then also notices what it should have been woken for, which hides a lost wake-up.
 * With selftest_sleep it does not check, and continues to sleep.
 *
 * A receiver that finds the connection empty reports to the publisher.  With
 * selftest_read_on it reads again until a transaction has arrived completely.  So a reply
 * within the transaction is one that was sent because it was due, however busy the machine
 * is and however slowly the messages come.
 *
 * With selftest_server_functions, which must be set before the library is loaded, another
 * library seems to have given the apply worker the server's functions back.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/guc.h"

#include "selftest.h"

int			papply_selftest_sleep = 0;
bool		papply_selftest_read_on = false;
bool		papply_selftest_server_functions = false;

void
papply_selftest_define_settings(void)
{
	DefineCustomIntVariable(PAPPLY_NAME ".selftest_sleep",
							"Sets the time after which a waiting writer checks its condition without being woken.",
							"0 is as usual.",
							&papply_selftest_sleep,
							0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							NULL, NULL, NULL);
	DefineCustomBoolVariable(PAPPLY_NAME ".selftest_read_on",
							 "Lets a receiver poll for the rest of a transaction.",
							 NULL,
							 &papply_selftest_read_on,
							 false,
							 PGC_SIGHUP, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable(PAPPLY_NAME ".selftest_server_functions",
							 "Leaves the server's functions for connections in place.",
							 NULL,
							 &papply_selftest_server_functions,
							 false,
							 PGC_POSTMASTER, GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE,
							 NULL, NULL, NULL);
}
