/*-------------------------------------------------------------------------
 * selftest.h
 *	  Common definitions for the files of src/test.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SELFTEST_H
#define PAPPLY_SELFTEST_H

#include "parallel_apply.h"

#ifndef PAPPLY_SELFTEST
#error "only for libraries made with SELFTEST=1"
#endif

#define EXPECT(condition) \
	do { \
		if (!(condition)) \
			elog(ERROR, "line %d: not true: %s", __LINE__, #condition); \
	} while (0)

/* The subscription of the test pool; no real one has this ID. */
#define PAPPLY_SELFTEST_SUBID ((Oid) PG_UINT32_MAX)

/*
 * Call drive in a pool with a queue, and destroy them afterwards.  This
 * backend is the receiver.  It can also act as a writer, by setting
 * papply_pool_waiter.
 */
extern void papply_selftest_with_queue(int size_kb, void (*drive) (void *model),
									   void *model);

/* Does a receiver poll for the rest of a transaction?  false: as usual. */
extern bool papply_selftest_read_on;

/* Does the server keep its functions for connections? */
extern bool papply_selftest_server_functions;

/*
 * How long does this process watch for a commit?  0: as usual.  And how long would it
 * usually have watched the last time?
 */
extern int	papply_selftest_watch_us;
extern int	papply_selftest_watched_us;

/* Called by papply_guc_init(). */
extern void papply_selftest_define_settings(void);

/* The settings of selftest_delays.c; called by the function above. */
extern void papply_selftest_define_delays(void);

#endif							/* PAPPLY_SELFTEST_H */
