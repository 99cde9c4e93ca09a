/*-------------------------------------------------------------------------
 * worker_slots.c
 *	  The server's own need of worker slots.
 *
 * Runs in the launcher of logical replication and in apply workers, who start
 * others; receivers look.
 *
 * Writers take worker slots, max_worker_processes of which the server has.  If these
 * are too few, it is writers that have to be fewer: a subscription whose apply worker
 * finds no slot is not applied at all, and a table whose synchronisation worker finds
 * none is not copied.  Writers stay for good, so that it would be so for good.
 *
 * Nobody but the postmaster knows how many slots are free, and to keep some free for
 * workers that may never come would cost writers.  But who finds none says so in the log,
 * and tries again some seconds later: that is noticed here, and each receiver gives a
 * writer up for it (writer_control.c).  (With log_min_messages above WARNING nothing is
 * said, and noticed.)
 *
 * Locking: none.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "port/atomics.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "clock.h"
#include "worker_slots.h"

#define SLOTS_NAME PAPPLY_NAME " worker slots"

/* What logicalrep_worker_launch() says, before it is translated. */
static const char *const no_slot = "out of background worker slots";

typedef struct MissedSlots
{
	pg_atomic_uint64 count;
	pg_atomic_uint64 last;		/* of clock.h; 0: none yet */
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
