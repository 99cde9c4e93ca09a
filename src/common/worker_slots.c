/*-------------------------------------------------------------------------
 * worker_slots.c
 *	  Leave worker slots to the server's own workers.
 *
 * Runs in receivers; the detection of missed slots also in the launcher of
 * logical replication and in apply workers, which start other workers.
 *
 * Writers occupy worker slots, of which the server has max_worker_processes.
 * If these are too few, there must be fewer writers.  Otherwise a subscription
 * whose apply worker finds no slot is not applied at all, a table whose
 * synchronization worker finds none is not copied, and a parallel query runs
 * without workers.
 *
 * So all writers together get what is left of max_worker_processes after the
 * running workers of other kinds and a reserve (a setting).  Parallel queries
 * use the reserve: their workers come and go too fast for writers to make
 * room.  Apply and synchronization workers start from the reserve, and
 * writers then exit to restore it.  A worker is counted once it is running.
 *
 * The reserve may be too small for several workers that start at once.  A
 * process that finds no slot logs a message, and tries again some seconds
 * later.  This file detects the message, and each receiver then gives up a
 * writer (writer_control.c).  (If log_min_messages is above WARNING, there is
 * no message to detect.)
 *
 * Locking: none.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "clock.h"
#include "worker_slots.h"

#define SLOTS_NAME PAPPLY_NAME " worker slots"

/* The message of logicalrep_worker_launch(), untranslated. */
static const char *const no_slot = "out of background worker slots";

typedef struct MissedSlots
{
	pg_atomic_uint64 count;
	pg_atomic_uint64 last;		/* see clock.h; 0 if never */
} MissedSlots;

static MissedSlots *missed = NULL;
static emit_log_hook_type previous_emit_log = NULL;

static void
note_message(ErrorData *error)
{
	if (error->elevel == WARNING && error->message_id != NULL && missed != NULL &&
		strcmp(error->message_id, no_slot) == 0)
	{
		pg_atomic_write_u64(&missed->last, papply_clock_now());
		pg_atomic_fetch_add_u64(&missed->count, 1);
	}
	if (previous_emit_log)
		previous_emit_log(error);
}

void
papply_worker_slots_init(void)
{
	previous_emit_log = emit_log_hook;
	emit_log_hook = note_message;
}

void
papply_worker_slots_request_shmem(void)
{
	RequestAddinShmemSpace(sizeof(MissedSlots));
}

void
papply_worker_slots_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	missed = ShmemInitStruct(SLOTS_NAME, sizeof(MissedSlots), &found);
	if (!found)
	{
		pg_atomic_init_u64(&missed->count, 0);
		pg_atomic_init_u64(&missed->last, 0);
	}
	LWLockRelease(AddinShmemInitLock);
}

uint64
papply_worker_slots_missed(void)
{
	return pg_atomic_read_u64(&missed->count);
}

int64
papply_worker_slots_missed_at(void)
{
	return pg_atomic_read_u64(&missed->last);
}

/*
 * Is this the type of a worker that is not counted?  Writers count themselves
 * (pool.c), from their registration on.
 */
static bool
is_left_out(const char *type)
{
	return strcmp(type, PAPPLY_WRITER_TYPE) == 0 || strcmp(type, "parallel worker") == 0;
}

int
papply_worker_slots_for_writers(void)
{
	int			others = 0;

	for (uint32 i = 0; i < ProcGlobal->allProcCount; i++)
	{
		pid_t		pid = ProcGlobal->allProcs[i].pid;
		const char *type = pid != 0 ? GetBackgroundWorkerTypeByPid(pid) : NULL;

		if (type != NULL && !is_left_out(type))
			others++;
	}
	return max_worker_processes - papply_reserved_worker_processes - others;
}
