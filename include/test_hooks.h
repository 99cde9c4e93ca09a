/*-------------------------------------------------------------------------
 * test_hooks.h
 *	  Libraries made with SELFTEST=1: what other files call, and definitions for
 *	  the files of src/test.
 *
 * What a test changes in waits is in src/test/selftest_wakes.c and
 * selftest_delays.c.  Without SELFTEST=1, none of this has an effect.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TEST_HOOKS_H
#define PAPPLY_TEST_HOOKS_H

#include "port/atomics.h"

#include "parallel_apply.h"

#ifdef PAPPLY_SELFTEST

/* Part of the pool: counts of waits. */
typedef struct PapplySharedTest
{
	pg_atomic_uint64 waits[PAPPLY_WAITERS];
	pg_atomic_uint64 long_sleeps;
	pg_atomic_uint64 timeouts;
} PapplySharedTest;

/*
 * Writer: count a wait of at most timeout_ms (-1: without a limit), and return
 * the limit to use.
 */
extern long papply_test_wait_ms(long timeout_ms);

/* Receiver: count a wait. */
extern void papply_test_count_wait(void);

/*
 * Receiver: count a sleep of its own that has ended.  is_long: it was in place of the
 * core apply loop's; is_timeout: nothing has happened in it.
 */
extern void papply_test_count_sleep(bool is_long, bool is_timeout);

/*
 * Receiver: wait before the core apply loop does, and let it wait when there
 * is no traffic.
 */
extern void papply_test_wait_for(pgsocket socket);
extern bool papply_test_waits_in_core_loop(void);

/* Return for how long flushes are deferred instead of this time. */
extern long papply_test_defer_ms(long defer_ms);

/* Any process: sleep before it wakes another one. */
extern void papply_test_delay_wake(void);

/* Receiver: return for how long it may be silent instead of this time. */
extern int	papply_test_silence_ms(int silence_ms);

/* Decide as on a fast machine, whatever time has been measured? */
extern bool papply_test_is_fast(void);

/* Return for how long a writer watches for a commit instead of this time. */
extern int	papply_test_watch_us(int watch_us);

#else

static inline long
papply_test_wait_ms(long timeout_ms)
{
	return timeout_ms;
}

static inline void
papply_test_count_wait(void)
{
}

static inline void
papply_test_count_sleep(bool is_long, bool is_timeout)
{
}

static inline void
papply_test_wait_for(pgsocket socket)
{
}

static inline bool
papply_test_waits_in_core_loop(void)
{
	return false;
}

static inline long
papply_test_defer_ms(long defer_ms)
{
	return defer_ms;
}

static inline void
papply_test_delay_wake(void)
{
}

static inline int
papply_test_silence_ms(int silence_ms)
{
	return silence_ms;
}

static inline bool
papply_test_is_fast(void)
{
	return false;
}

static inline int
papply_test_watch_us(int watch_us)
{
	return watch_us;
}

#endif							/* PAPPLY_SELFTEST */

#ifdef PAPPLY_SELFTEST

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

/* Return how often this writer has slept since its pool was made. */
extern uint64 papply_selftest_sleeps(void);

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

#endif							/* PAPPLY_SELFTEST */

#endif							/* PAPPLY_TEST_HOOKS_H */
