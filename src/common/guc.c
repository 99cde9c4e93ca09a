/*-------------------------------------------------------------------------
 * guc.c
 *	  The settings parallel_apply.*.
 *
 * A reload can change all of them.  The receiver reads them between remote
 * transactions, so that no setting changes in the middle of one.  A walsender
 * reads coalesce_messages at each message.  This setting concerns a connection
 * from the publisher's point of view, so it can also be set for its role or
 * database; the others concern the server.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "test_hooks.h"

#include "utils/guc.h"


static const struct config_enum_entry decoding_values[] = {
	{"auto", PAPPLY_DECODING_AUTO, false},
	{"on", PAPPLY_DECODING_ON, false},
	{"slots", PAPPLY_DECODING_SLOTS, false},
	{"off", PAPPLY_DECODING_OFF, false},
	{NULL, 0, false}
};

static const struct config_enum_entry streaming_values[] = {
	{"writer", PAPPLY_STREAMING_WRITER, false},
	{"file", PAPPLY_STREAMING_FILE, false},
	{NULL, 0, false}
};

bool		papply_coalesce_messages = false;
int			papply_idle_writers_per_subscription = 1;
bool		papply_leader_participation = true;
bool		papply_log_conflicts = false;
int			papply_log_min_duration = -1;
int			papply_logical_decoding = PAPPLY_DECODING_AUTO;
int			papply_max_batch_transactions = 32;
int			papply_max_stored_transaction_size = 1024 * 1024;
int			papply_max_writers_per_subscription = 8;
int			papply_queue_size = 32768;
int			papply_reserved_worker_processes = 2;
int			papply_streaming_apply = PAPPLY_STREAMING_WRITER;
int			papply_writer_idle_timeout = 10000;
int			papply_writers_per_subscription = 4;

static void
define_log_settings(void)
{
	DefineCustomBoolVariable(PAPPLY_NAME ".log_conflicts",
							 "Logs rows to be updated or deleted that are missing or were written by another origin.",
							 "PostgreSQL 18 and later always log them.",
							 &papply_log_conflicts,
							 false,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".log_min_duration",
							"Sets the minimum time to apply a remote transaction above which the transaction is logged.",
							"Zero logs all of them. -1 turns this feature off.",
							&papply_log_min_duration,
							-1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

static void
define_writer_settings(void)
{
	DefineCustomIntVariable(PAPPLY_NAME ".idle_writers_per_subscription",
							"Sets the number of writers of a subscription that are kept while they are idle.",
							"Further ones exit after \"" PAPPLY_NAME ".writer_idle_timeout\" and are started again when there is a backlog. -1 keeps all.",
							&papply_idle_writers_per_subscription,
							1, -1, PAPPLY_MAX_WRITERS,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".max_writers_per_subscription",
							"Sets the maximum number of writers of any one subscription.",
							NULL,
							&papply_max_writers_per_subscription,
							8, 1, PAPPLY_MAX_WRITERS,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".reserved_worker_processes",
							"Sets the number of worker processes that writers leave to parallel queries and other workers.",
							"They are a part of \"max_worker_processes\". Writers exit when other workers use them.",
							&papply_reserved_worker_processes,
							2, 0, 0x3FFFF,	/* as max_worker_processes */
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".writer_idle_timeout",
							"Sets the time after which an idle writer exits.",
							"\"" PAPPLY_NAME ".idle_writers_per_subscription\" writers of each subscription are kept.",
							&papply_writer_idle_timeout,
							10000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".writers_per_subscription",
							"Sets the number of processes that apply a subscription.",
							"With 1, PostgreSQL's own apply worker does it alone.",
							&papply_writers_per_subscription,
							4, 1, PAPPLY_MAX_WRITERS,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);
}

void
papply_guc_init(void (*assign_coalesce_messages) (bool is_on, void *extra))
{
	DefineCustomBoolVariable(PAPPLY_NAME ".coalesce_messages",
							 "Enables a publisher to send several logical replication messages at once.",
							 "If off, each message is sent by itself, as PostgreSQL does.",
							 &papply_coalesce_messages,
							 false,
							 PGC_SUSET, 0,
							 NULL, assign_coalesce_messages, NULL);

	DefineCustomBoolVariable(PAPPLY_NAME ".leader_participation",
							 "Controls whether the apply worker itself applies small transactions while all writers are idle.",
							 "That takes less time than waking a writer.",
							 &papply_leader_participation,
							 true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	define_log_settings();
	define_writer_settings();

	DefineCustomEnumVariable(PAPPLY_NAME ".logical_decoding",
							 "Sets whether applied changes are expected to be decoded, as by a subscription to this server.",
							 "If they are, writers write the same WAL as PostgreSQL's own apply would.",
							 &papply_logical_decoding,
							 PAPPLY_DECODING_AUTO, decoding_values,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".max_batch_transactions",
							"Sets the maximum number of remote transactions that a writer applies as one local transaction.",
							"Batches are made only while there is a backlog. 1 turns them off.",
							&papply_max_batch_transactions,
							32, 1, 1000,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".max_stored_transaction_size",
							"Sets the maximum size of a transaction that is skipped and stored.",
							"A larger one is not skipped, unless nothing is to be stored.",
							&papply_max_stored_transaction_size,
							1024 * 1024, 64, MAX_KILOBYTES,
							PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);

	/*
	 * The lower bound leaves room for a few messages; a transaction that does
	 * not fit is applied while it is being received.
	 */
	DefineCustomIntVariable(PAPPLY_NAME ".queue_size",
							"Sets the shared memory for received transactions of each subscription.",
							"A change takes effect when the subscription's writers are started next.",
							&papply_queue_size,
							32768, 64, Min(16 * 1024 * 1024, MAX_KILOBYTES),
							PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);

	DefineCustomEnumVariable(PAPPLY_NAME ".streaming_apply",
							 "Sets how a streamed transaction is applied.",
							 "\"writer\": by a writer, while it arrives, if one is free; \"file\": from a temporary file, after its end.",
							 &papply_streaming_apply,
							 PAPPLY_STREAMING_WRITER, streaming_values,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

#ifdef PAPPLY_SELFTEST
	papply_selftest_define_settings();
#endif
	MarkGUCPrefixReserved(PAPPLY_NAME);
}

int
papply_guc_writers(int configured)
{
	return Min(configured > 0 ? configured : papply_writers_per_subscription,
			   papply_max_writers_per_subscription);
}
