/*-------------------------------------------------------------------------
 * slot_consumer.c
 *	  Find out what the consumers of this server's WAL want of it.
 *
 * Runs in the receiver, in writers, and in a user's backend.
 *
 * The command with which a consumer has started a walsender is what
 * pg_stat_activity shows for it.  The walsender reports the command before it
 * takes the slot, and reports another state before it begins the next command.
 * So a slot is read with the options of a command if the walsender has the slot
 * and shows that command, of that slot, as one that it is executing.  Not every
 * process that has a slot is such a walsender: a session keeps its temporary
 * slots between statements, and may show any text.
 *
 * If "track_activities" is off in the walsender, or the text is longer than
 * "track_activity_query_size", the command is not known.
 *
 * Nothing is remembered of a command, because its text is read in less time
 * than it takes to find out whether it is still the same.  Only the PGPROC of
 * a process ID is remembered, and compared at each use.
 *
 * Locking: the text is read without a lock, by the protocol of its counter of
 * changes (backend_status.h).  Process IDs of slots and walsenders, and the
 * xmin of a walsender, are read without their locks, since each is read at
 * once, and may be different at the next moment anyway.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/transam.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"

#include "slot_consumer.h"

/* An entry that changes this often while it is read is given up. */
#define MAX_READS 100

/* Return the process, or NULL. */
static PGPROC *
find_process(int pid)
{
	static PGPROC *found[64];
	PGPROC	  **process = &found[pid % lengthof(found)];

	/* The server clears this field when the process ends. */
	if (*process == NULL || *(volatile int *) &(*process)->pid != pid)
		*process = BackendPidGetProc(pid);
	return *process;
}

/*
 * Return the text of the command that the walsender is executing, or NULL.  It
 * is valid until the next call.
 */
static const char *
get_command(int pid)
{
	static char *command = NULL;
	const PGPROC *process = find_process(pid);
	volatile PgBackendStatus *entry;

	if (process == NULL || MyBEEntry == NULL)
		return NULL;
	if (command == NULL)
		command = MemoryContextAlloc(TopMemoryContext, pgstat_track_activity_query_size);
	entry = MyBEEntry +
		(papply_compat_status_index(process) - papply_compat_status_index(MyProc));
	for (int i = 0; i < MAX_READS; i++)
	{
		bool		is_executing;
		size_t		length = 0;
		int			before;
		int			after;

		pgstat_begin_read_activity(entry, before);
		is_executing = entry->st_procpid == pid && entry->st_backendType == B_WAL_SENDER &&
			entry->st_state == STATE_RUNNING;
		if (is_executing)
		{
			length = strnlen(entry->st_activity_raw, pgstat_track_activity_query_size - 1);
			memcpy(command, entry->st_activity_raw, length);
		}
		pgstat_end_read_activity(entry, after);
		if (!pgstat_read_activity_complete(before, after))
			continue;
		command[length] = '\0';
		return is_executing ? command : NULL;
	}
	return NULL;
}

bool
papply_slot_consumer_omits_origins(const ReplicationSlot *slot)
{
	int			pid = papply_compat_slot_pid(slot);
	const char *command;

	if (pid == 0 || strcmp(NameStr(slot->data.plugin), "pgoutput") != 0)
		return false;
	command = get_command(pid);
	return command != NULL &&
		papply_replication_command_omits_origins(command, NameStr(slot->data.name)) &&
		papply_compat_slot_pid(slot) == pid;
}

int
papply_slot_consumer_find_standby(void)
{
	for (int i = 0; i < max_wal_senders; i++)
	{
		WalSnd	   *walsender = &WalSndCtl->walsnds[i];
		int			pid = *(volatile pid_t *) &walsender->pid;
		PGPROC	   *process;

		if (pid == 0 || !papply_compat_walsender_is_physical(walsender))
			continue;
		process = find_process(pid);
		if (process != NULL && TransactionIdIsValid(*(volatile TransactionId *) &process->xmin))
			return pid;
	}
	return 0;
}
