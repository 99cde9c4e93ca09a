/*-------------------------------------------------------------------------
 * last_consumer.c
 *	  Remember what the last consumer of a logical slot wanted of it.
 *
 * Runs in the postmaster (sizing), in walsenders that exit, in the receiver, in
 * writers, and in a user's backend.
 *
 * A subscription may be disconnected for hours.  Its slot is not used then, and
 * what the next consumer of the slot wants can be known only from the last one.
 * So a walsender that exits while it has a slot stores here whether it omitted
 * what has a replication origin (slot_consumer.c), and the position at which it
 * has left the slot.
 *
 * Slots have no identity: a slot may be dropped, and another one be created with
 * its name, by SQL functions that no extension sees.  But only a process that has
 * the slot can move its position, and the position of a new slot is the end of a
 * WAL record that was written after the slot was begun, hence beyond all that was
 * confirmed before.  So a name and a position belong to the same slot, or to a
 * copy of it (pg_copy_logical_replication_slot), whose next consumer gets
 * exactly the same.  Every consumer that has confirmed anything since has moved the
 * position, and one that has confirmed nothing has taken nothing.
 *
 * Nothing is remembered across a restart.  Nor is what a command wanted that has
 * ended before its walsender exits; those of subscriptions end so only when the
 * server shuts down, or after an error of the walsender.
 *
 * If another consumer, which wants all origins, takes the slot later, it gets
 * what was applied meanwhile as it was applied.
 *
 * The alternative is that the processes which check the slots note what they
 * find.  But between the last check and the end of the walsender, the consumer may
 * have confirmed more, or may have been replaced by another one.
 *
 * Locking: an entry is protected by the mutex of its slot.  The process that has
 * the slot writes it.  The server releases the slot later, also under the mutex,
 * so a process that finds the slot unused finds the entry of its last walsender.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

/* The server's headers do not include those of GSSAPI then, of which nothing is used here. */
#undef ENABLE_GSS

#include "libpq/auth.h"
#include "replication/walsender.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "storage/spin.h"

#include "modules.h"
#include "slot_consumer.h"

/* Of the slot with the same number. */
typedef struct Entry
{
	NameData	slot_name;		/* empty: nothing is remembered */
	XLogRecPtr	confirmed_lsn;	/* of this server */
} Entry;

static Entry *entries = NULL;

static ClientAuthentication_hook_type previous_authentication = NULL;

#define ENTRIES_NAME PAPPLY_NAME " consumers"

static Size
entries_size(void)
{
	return mul_size(Max(max_replication_slots, 1), sizeof(Entry));
}

void
papply_last_consumer_request_shmem(void)
{
	RequestAddinShmemSpace(entries_size());
}

void
papply_last_consumer_init_shmem(void)
{
	bool		found;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	entries = ShmemInitStruct(ENTRIES_NAME, entries_size(), &found);
	if (!found)
		memset(entries, 0, entries_size());
	LWLockRelease(AddinShmemInitLock);
}

/* Return the entry of a slot; 19: or NULL, if the slot is one of REPACK. */
static Entry *
get_entry(const ReplicationSlot *slot)
{
	int			number = slot - ReplicationSlotCtl->replication_slots;

	return number < max_replication_slots ? &entries[number] : NULL;
}

/* Store what this walsender wants; called before the server releases the slot. */
static void
note_end(int code, Datum arg)
{
	ReplicationSlot *slot = MyReplicationSlot;
	Entry	   *entry = slot != NULL ? get_entry(slot) : NULL;
	bool		omits_origins;

	if (entry == NULL)
		return;
	LWLockReleaseAll();			/* an error may be what ends this process */
	omits_origins = papply_slot_consumer_omits_origins(slot);
	SpinLockAcquire(&slot->mutex);
	memset(entry, 0, sizeof(*entry));
	if (omits_origins)
	{
		entry->slot_name = slot->data.name;
		entry->confirmed_lsn = slot->data.confirmed_flush;
	}
	SpinLockRelease(&slot->mutex);
}

/* The first that a walsender calls of this library. */
static void
authenticate(Port *port, int status)
{
	if (previous_authentication)
		previous_authentication(port, status);
	if (am_walsender)
		before_shmem_exit(note_end, (Datum) 0);
}

void
papply_last_consumer_init(void)
{
	previous_authentication = ClientAuthentication_hook;
	ClientAuthentication_hook = authenticate;
}

bool
papply_last_consumer_omitted_origins(ReplicationSlot *slot)
{
	const Entry *entry = get_entry(slot);
	bool		omitted_origins;

	if (entry == NULL || strcmp(NameStr(slot->data.plugin), "pgoutput") != 0)
		return false;
	SpinLockAcquire(&slot->mutex);
	omitted_origins = papply_compat_slot_pid(slot) == 0 &&
		strcmp(NameStr(entry->slot_name), NameStr(slot->data.name)) == 0 &&
		entry->confirmed_lsn == slot->data.confirmed_flush;
	SpinLockRelease(&slot->mutex);
	return omitted_origins;
}
