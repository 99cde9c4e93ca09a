/*-------------------------------------------------------------------------
 * failed.c
 *	  Describe the transaction that the apply worker failed to apply.
 *
 * Runs in the receiver, with and without a pool, when PostgreSQL logs an
 * error.
 *
 * If a writer fails to apply a transaction, it is retried, in the end by the
 * core apply loop.  So an error of the core apply loop is the one that counts,
 * and the message that it is processing is the change that fails.  tap.c
 * remembers where that message is, so nothing is done as long as nothing
 * fails.  If the transaction has many changes, the next attempts are left to
 * the core apply loop at once.
 *
 * When the error is logged, the transaction is going to be rolled back and the
 * process to end.  No further error may be thrown then.  If the server itself
 * has spooled the changes of a streamed transaction, the message is not the
 * change that fails.  Then the table is taken from the error, if the error
 * names it.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/timestamp.h"

#include "../receiver/tap.h"
#include "failed.h"
#include "modules.h"
#include "pool.h"
#include "statistics.h"

/* Remember what the view shows about a transaction, if it fails. */
static void
note_error(const PapplyTap *tap)
{
	const ErrorData *error = tap->error;
	const PapplyRemoteRelation *rel;
	PapplyFailedTransaction failed = {0};

	if (error->elevel != ERROR || !papply_tap_is_applying())
		return;
	rel = papply_tap_relation();
	failed.remote_xid = tap->begin.xid;
	failed.final_lsn = tap->begin.final_lsn;
	failed.commit_time = tap->begin.commit_time;
	failed.failed_at = failed.first_failed_at = GetCurrentTimestamp();
	failed.attempts = 1;
	failed.changes = papply_statistics_progress->leader.changes;
	failed.sqlerrcode = error->sqlerrcode;
	papply_text_copy(failed.message, error->message, sizeof(failed.message));
	papply_text_copy(failed.detail, error->detail, sizeof(failed.detail));
	papply_text_copy(failed.context, error->context, sizeof(failed.context));
	papply_text_copy(failed.schema_name, rel != NULL ? rel->remote->nspname : error->schema_name,
					 sizeof(failed.schema_name));
	papply_text_copy(failed.table_name, rel != NULL ? rel->remote->relname : error->table_name,
					 sizeof(failed.table_name));
	papply_text_copy(failed.error_schema_name, error->schema_name, sizeof(failed.error_schema_name));
	papply_text_copy(failed.error_table_name, error->table_name, sizeof(failed.error_table_name));
	failed.kind = tap->message.kind;
	if (rel != NULL)
		papply_message_show_key(&tap->message, rel->remote, failed.key, sizeof(failed.key));
	papply_statistics_note_failed(&failed);
	papply_pool_set_refetched(InvalidXLogRecPtr);	/* not for its size */
	if (papply_statistics_is_failed(failed.remote_xid))
		papply_pool_set_fallback(failed.final_lsn);
}

void
papply_failed_init(void)
{
	papply_tap_observe(PAPPLY_TAP_ERROR, note_error);
	papply_store_init();
	papply_drop_stored_init();
}
