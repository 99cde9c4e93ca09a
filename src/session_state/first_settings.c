/*-------------------------------------------------------------------------
 * first_settings.c
 *	  Writers begin with the settings that the apply worker has begun with.
 *
 * Runs in the receiver and in writers.
 *
 * A process reads what ALTER DATABASE and ALTER ROLE have set when it connects.
 * PostgreSQL's own apply is one process, so a later change has no effect until
 * it starts again.  Writers come and go with the load.  If each had the newest
 * settings, rows of one load would be made with different ones, for example
 * with different time zones.
 *
 * So a writer takes all settings of the receiver, by the functions that the
 * server has for its parallel workers.  They are those from before the first
 * transaction, because user code may change settings of its session
 * (session_state.c).  The configuration files are an exception: the receiver
 * follows them, so the writer reads them again.
 *
 * A setting may have become invalid meanwhile, for example the name of a
 * tablespace that was dropped.  Then writers cannot start, and those that
 * run, or the receiver alone, apply everything until the apply worker starts
 * again.
 *
 * Locking: the settings are in the registry before a writer is started.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/xact.h"
#include "lib/stringinfo.h"
#include "postmaster/interrupt.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "pool.h"
#include "relation_registry.h"
#include "session_state.h"

/* Of the receiver, in the server's format. */
typedef struct FirstSettings
{
	char	   *state;			/* NULL: not noted yet */
	Size		size;
} FirstSettings;

static FirstSettings first;

/*** receiver ***/

void
papply_first_settings_note(void)
{
	Assert(first.state == NULL);
	first.size = EstimateGUCStateSpace();
	first.state = MemoryContextAllocZero(TopMemoryContext, first.size);
	SerializeGUCState(first.size, first.state);
}

void
papply_first_settings_share(void)
{
	Assert(first.state != NULL);
	papply_pool->session.settings_version = papply_registry_add_at_start(first.state, first.size,
																		 InvalidOid);
}

/*** writers ***/

static void
add_hint(void *arg)
{
	errhint("A writer begins with the settings of the apply worker. "
			"If one is not valid any more, disable and enable the subscription.");
}

void
papply_first_settings_take(void)
{
	ErrorContextCallback error_context = {.callback = add_hint,.previous = error_context_stack};
	StringInfoData state;

	Assert(!IsTransactionState());
	if (papply_pool->session.settings_version == 0)
		return;					/* no receiver has made this pool */
	initStringInfo(&state);
	(void) papply_registry_get(papply_pool->session.settings_version, &state);
	error_context_stack = &error_context;
	StartTransactionCommand();	/* settings such as role read catalogs */
	RestoreGUCState(state.data);
	CommitTransactionCommand();
	error_context_stack = error_context.previous;
	pfree(state.data);
	ConfigReloadPending = true;
}
