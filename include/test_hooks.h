/*-------------------------------------------------------------------------
 * test_hooks.h
 *	  What a test changes in waits; see src/test/selftest_wakes.c and
 *	  selftest_delays.c.
 *
 * Without SELFTEST=1, none of this has an effect.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TEST_HOOKS_H
#define PAPPLY_TEST_HOOKS_H

#ifdef PAPPLY_SELFTEST

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

#endif							/* PAPPLY_TEST_HOOKS_H */
