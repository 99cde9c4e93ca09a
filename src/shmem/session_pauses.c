/*-------------------------------------------------------------------------
 * session_pauses.c
 *	  Pauses of subscriptions that last as long as the sessions that asked for them.
 *
 * Runs in the postmaster (sizing), in users' backends, and in receivers.
 *
 * pause() with a position stops apply at exactly that position.  A program that
 * compares both servers needs this for some milliseconds, and must not leave a
 * paused subscription behind when it is killed.  So the pause is not stored
 * anywhere: it is an entry in shared memory, which an exit callback of the session
 * removes.  The alternative, an option of the subscription with the process ID of
 * the session, would outlive a crash of the server.
 *
 * The entries are not in the slots of the subscriptions (slots.c), since another
 * subscription may take a slot while the pause lasts.  A subscription has at most
 * one entry.  There are as many as there can be leader apply workers.
 *
 * Locking: the lock protects the entries.  A receiver compares the number of
 * changes with the one that it has seen, without the lock, before it begins a
 * transaction, and then reads its entry.  It is woken after each change.
 *
 * Waits: the session polls its entry (wait.c), and holds no lock meanwhile.
 *
 * If a session is killed by SIGKILL, the postmaster reinitializes shared memory.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "replication/logicallauncher.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

#include "session_pauses.h"

typedef struct SessionPauses
{
	/* protected by the lock */
	PapplySessionPause *entries;	/* behind this struct */
	int			length;
	LWLock		lock;

	/* incremented after a change of an entry by a session */
	pg_atomic_uint32 changes;
} SessionPauses;

static SessionPauses *pauses = NULL;

#define PAUSES_NAME PAPPLY_NAME " pauses"

static Size
pauses_size(void)
{
	return add_size(MAXALIGN(sizeof(SessionPauses)),
					mul_size(max_logical_replication_workers, sizeof(PapplySessionPause)));
}

void
papply_session_pauses_request_shmem(void)
{
	RequestAddinShmemSpace(pauses_size());
	RequestNamedLWLockTranche(PAUSES_NAME, 1);
}

void
papply_session_pauses_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	pauses = ShmemInitStruct(PAUSES_NAME, pauses_size(), &found);
	if (!found)
	{
		memset(pauses, 0, pauses_size());
		pauses->entries = (PapplySessionPause *) ((char *) pauses + MAXALIGN(sizeof(SessionPauses)));
		pauses->length = max_logical_replication_workers;
		LWLockInitialize(&pauses->lock, GetNamedLWLockTranche(PAUSES_NAME)->lock.tranche);
		pg_atomic_init_u32(&pauses->changes, 1);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* Return the entry of a subscription, or NULL.  The caller holds the lock. */
static PapplySessionPause *
find_pause(Oid subid)
{
	for (int i = 0; i < pauses->length; i++)
		if (pauses->entries[i].subid == subid)
			return &pauses->entries[i];
	return NULL;
}

/* Make the receiver read the entry.  The caller does not hold the lock. */
static void
announce_change(Oid subid)
{
	pg_atomic_fetch_add_u32(&pauses->changes, 1);
	papply_compat_wake_leader(subid);
}

/* Remove the pause of a subscription, if pid, or any session, has it. */
static void
remove_pause(Oid subid, int pid)
{
	PapplySessionPause *pause;

	LWLockAcquire(&pauses->lock, LW_EXCLUSIVE);
	pause = find_pause(subid);
	if (pause != NULL && pid != 0 && pause->pid != pid)
		pause = NULL;
	if (pause != NULL)
		pause->subid = InvalidOid;
	LWLockRelease(&pauses->lock);
	if (pause != NULL)
		announce_change(subid);
}

void
papply_session_pauses_remove(Oid subid)
{
	remove_pause(subid, 0);
}

void
papply_session_pauses_remove_own(Oid subid)
{
	remove_pause(subid, MyProcPid);
}

/*
 * Only this session adds or replaces its entries.  An error may be what ends this
 * process, with locks held.
 */
static void
remove_at_exit(int code, Datum arg)
{
	LWLockReleaseAll();
	for (int i = 0; i < pauses->length; i++)
		if (pauses->entries[i].pid == MyProcPid && OidIsValid(pauses->entries[i].subid))
			remove_pause(pauses->entries[i].subid, MyProcPid);
}

int
papply_session_pauses_set(Oid subid, XLogRecPtr remote_lsn)
{
	static bool has_exit_callback = false;
	PapplySessionPause *pause;
	int			result = -1;

	if (!has_exit_callback)
		before_shmem_exit(remove_at_exit, (Datum) 0);
	has_exit_callback = true;

	LWLockAcquire(&pauses->lock, LW_EXCLUSIVE);
	pause = find_pause(subid);
	if (pause == NULL)
	{
		pause = find_pause(InvalidOid);
		if (pause != NULL)
			pause->pid = MyProcPid;
	}
	if (pause != NULL && pause->pid == MyProcPid)
	{
		if (pause->subid != subid || pause->remote_lsn != remote_lsn)
			pause->state = PAPPLY_PAUSE_REQUESTED;
		pause->subid = subid;
		pause->remote_lsn = remote_lsn;
		pause->has_position = remote_lsn != InvalidXLogRecPtr;
		result = 0;
	}
	else if (pause != NULL)
		result = pause->pid;
	LWLockRelease(&pauses->lock);
	if (result == 0)
		announce_change(subid);
	return result;
}

bool
papply_session_pauses_get(Oid subid, PapplySessionPause *copy)
{
	PapplySessionPause *pause;

	LWLockAcquire(&pauses->lock, LW_SHARED);
	pause = find_pause(subid);
	if (pause != NULL)
		*copy = *pause;
	LWLockRelease(&pauses->lock);
	return pause != NULL;
}

uint32
papply_session_pauses_changes(void)
{
	return pg_atomic_read_u32(&pauses->changes);
}

void
papply_session_pauses_report(const PapplySessionPause *read, XLogRecPtr remote_lsn,
							 PapplySessionPauseState state)
{
	PapplySessionPause *pause;

	LWLockAcquire(&pauses->lock, LW_EXCLUSIVE);
	pause = find_pause(read->subid);
	if (pause != NULL && pause->pid == read->pid && pause->remote_lsn == read->remote_lsn)
	{
		pause->remote_lsn = remote_lsn;
		pause->state = state;
	}
	LWLockRelease(&pauses->lock);
}
