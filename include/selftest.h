/*-------------------------------------------------------------------------
 * room: any
 *
 * selftest.h
 *	  What the files of src/test have in common.
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

/*
 * Call drive in a pool with a queue, which are gone afterwards.  This backend is
 * its receiver; it may be a writer, too, by papply_pool_waiter.
 */
extern void papply_selftest_with_queue(int size_kb, void (*drive) (void *model),
									   void *model);

/* How long a writer sleeps that nobody wakes, in ms; 0: as usual. */
extern int	papply_selftest_sleep;

/* Called by papply_guc_init(). */
extern void papply_selftest_define_settings(void);

#endif							/* PAPPLY_SELFTEST_H */
