/*-------------------------------------------------------------------------
 * parallel_apply.c
 *	  Entry point: magic, settings, security labels, shared memory, walrcv
 *	  hook.
 *
 * Runs in the postmaster.  The library must be preloaded, since every process
 * has to inherit the walrcv hook and the shared memory has to be sized at
 * start.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "miscadmin.h"
#include "replication/walsender.h"
#include "storage/ipc.h"

#include "modules.h"
#include "session_pauses.h"
#include "slots.h"
#include "table_options.h"
#include "table_statistics.h"

PAPPLY_COMPAT_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static shmem_request_hook_type previous_shmem_request = NULL;
static shmem_startup_hook_type previous_shmem_startup = NULL;

static void
request_shmem(void)
{
	if (previous_shmem_request)
		previous_shmem_request();
	papply_slots_request_shmem();
	papply_table_statistics_request_shmem();
	papply_session_pauses_request_shmem();
	papply_last_consumer_request_shmem();
}

static void
startup_shmem(void)
{
	if (previous_shmem_startup)
		previous_shmem_startup();
	papply_slots_init_shmem();
	papply_table_statistics_init_shmem();
	papply_session_pauses_init_shmem();
	papply_last_consumer_init_shmem();
	papply_saved_init();
}

/*
 * Apply a new value of coalesce_messages.  In a process that is no walsender
 * the setting, perhaps that of its role, has no effect.
 */
static void
switch_sender(bool is_on, void *extra)
{
	bool		is_effective = is_on && (am_walsender || !IsUnderPostmaster);

	papply_coalesce_switch(is_effective);
	papply_read_on_switch(is_effective);
}

void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" must be loaded via \"%s\"",
						PAPPLY_NAME, "shared_preload_libraries"),
				 errhint("Add \"%s\" to \"%s\" in postgresql.conf and restart the server.",
						 PAPPLY_NAME, "shared_preload_libraries")));

	papply_coalesce_init();
	papply_read_on_init();
	papply_guc_init(switch_sender);
	papply_table_options_init();
	papply_drop_extension_init();
	papply_last_consumer_init();
	papply_failed_init();
	papply_walrcv_hook_install();

	previous_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}
