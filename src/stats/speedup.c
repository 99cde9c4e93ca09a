/*-------------------------------------------------------------------------
 * speedup.c
 *	  Estimate the speedup by more writers.
 *
 * Runs in the receiver; views read the estimates.
 *
 * The receiver knows for each transaction which older one it depends on.  From
 * this it can tell what any number of writers could achieve at best, without
 * having them, by a simple model of list scheduling.  With W writers,
 * transaction s begins when the one that it depends on is committed and a
 * writer is free.  Commits are in order, so the writer that becomes free is
 * that of s - W. If s depends on s - d, it begins when s - min(d, W) is
 * committed.  It takes one unit of time for each change, and one for its
 * beginning and end, and is committed no earlier than s - 1:
 *
 * 		commit(s) = max(commit(s - 1), commit(s - min(d, W)) + changes + 1)
 *
 * The speedup of W writers is the time that one writer would take, which is
 * the sum of changes + 1 over all transactions, divided by the time of the
 * last commit.  It is an upper limit, since the model knows no limits of
 * processors, storage and locks.  A writer in fact waits at the change that
 * has the dependency, not at the beginning of the transaction, so a little
 * more is possible.  Batches, which reduce waits without more writers, are not
 * part of the model.
 *
 * This costs some nanoseconds for each number of writers, so only WINDOW
 * transactions out of PERIOD are considered, as if there were none before
 * them.  The weight of older windows decreases, so that the estimate follows
 * the load.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "speedup.h"

#define PERIOD 8192
#define WINDOW 1024

/* Weight of older windows when a new one begins. */
#define DECAY 0.75

static const int numbers[PAPPLY_SPEEDUPS] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 64};

typedef struct Window
{
	uint64		first_seqno;
	uint64		work;			/* so far */
	PapplySpeedup older;		/* sums over older windows */

	/* times of the last 64 commits, by seqno, for each number of writers */
	uint64		commits[PAPPLY_SPEEDUPS][PAPPLY_MAX_WRITERS];
} Window;

static Window window;

StaticAssertDecl(PAPPLY_MAX_WRITERS == 64, "numbers of writers in speedup.c");

int
papply_speedup_writers(int n)
{
	return numbers[n];
}

void
papply_speedup_reset(void)
{
	window.first_seqno = PAPPLY_NO_SEQNO;
}

static void
begin_window(const PapplySpeedup *speedup, uint64 seqno)
{
	memset(&window, 0, sizeof(window));
	window.first_seqno = seqno;
	window.older = *speedup;
	window.older.work *= DECAY;
	for (int i = 0; i < PAPPLY_SPEEDUPS; i++)
		window.older.time[i] *= DECAY;
}

void
papply_speedup_add(PapplySpeedup *speedup, uint64 seqno, uint64 dependency, uint64 changes)
{
	Assert(dependency < seqno);
	if (speedup->must_reset)
	{
		memset(speedup, 0, sizeof(*speedup));
		window.first_seqno = PAPPLY_NO_SEQNO;
	}
	if (window.first_seqno == PAPPLY_NO_SEQNO || seqno - window.first_seqno >= PERIOD)
		begin_window(speedup, seqno);
	else if (seqno - window.first_seqno >= WINDOW)
		return;
	Assert(seqno >= window.first_seqno);
	window.work += changes + 1;
	speedup->transactions = window.older.transactions + (seqno - window.first_seqno + 1);
	speedup->work = window.older.work + window.work;
	for (int i = 0; i < PAPPLY_SPEEDUPS; i++)
	{
		uint64		distance = Min(seqno - dependency, (uint64) numbers[i]);
		uint64	   *commit = window.commits[i];
		uint64		previous = commit[(seqno - 1) % PAPPLY_MAX_WRITERS];
		uint64		begin = 0;
		uint64		mine;

		if (seqno - distance >= window.first_seqno)
			begin = commit[(seqno - distance) % PAPPLY_MAX_WRITERS];
		mine = Max(previous, begin + changes + 1);
		commit[seqno % PAPPLY_MAX_WRITERS] = mine;
		speedup->time[i] = window.older.time[i] + mine;
	}
}
