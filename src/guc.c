/*-------------------------------------------------------------------------
 * guc.c
 *	  The settings parallel_apply.*.
 *
 * All of them can be changed by a reload.  The receiver looks at them between
 * remote transactions, so that no setting changes in the middle of one; a
 * walsender at each message.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/guc.h"

#ifdef PAPPLY_SELFTEST
#include "selftest.h"
#endif

void		(*papply_guc_gather_changed) (bool is_on) = NULL;

static const struct config_enum_entry decoding_values[] = {
	{"auto", PAPPLY_DECODING_AUTO, false},
	{"on", PAPPLY_DECODING_ON, false},
	{"slots", PAPPLY_DECODING_SLOTS, false},
	{"off", PAPPLY_DECODING_OFF, false},
	{NULL, 0, false}
};

bool		papply_apply_lone_transactions = true;
bool		papply_apply_streams_early = true;
bool		papply_gather_messages = true;
int			papply_log_min_duration = -1;
int			papply_logical_decoding = PAPPLY_DECODING_AUTO;
int			papply_max_batch_transactions = 32;
int			papply_max_writers_per_subscription = 8;
int			papply_min_writers_per_subscription = PAPPLY_MAX_WRITERS;
int			papply_queue_size = 32768;
int			papply_writer_idle_timeout = 60000;
int			papply_writers_per_subscription = 4;

static void
assign_gather_messages(bool value, void *extra)
{
	if (papply_guc_gather_changed != NULL)
		papply_guc_gather_changed(value);
}

void
papply_guc_init(void)
{
	DefineCustomBoolVariable(PAPPLY_NAME ".apply_lone_transactions",
							 "Lets the apply worker itself apply a small transaction when nothing else is to be done.",
							 "That is faster than waking a writer.",
							 &papply_apply_lone_transactions,
							 true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable(PAPPLY_NAME ".apply_streams_early",
							 "Lets a writer apply a streamed transaction before its end is known.",
							 "Else it is kept in a file until then.",
							 &papply_apply_streams_early,
							 true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable(PAPPLY_NAME ".gather_messages",
							 "Lets a publisher send several messages of logical replication at once.",
							 "Else each is sent by itself, as PostgreSQL does.",
							 &papply_gather_messages,
							 true,
							 PGC_SIGHUP, 0,
							 NULL, assign_gather_messages, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".log_min_duration",
							"Sets the minimum time to apply a remote transaction above which it is logged.",
							"With what it waited for; 0 logs all of them, -1 none.",
							&papply_log_min_duration,
							-1, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomEnumVariable(PAPPLY_NAME ".logical_decoding",
							 "Says whether the changes of this server are decoded, as by a subscription to it.",
							 "Then writers log each remote transaction as PostgreSQL's own apply would.",
							 &papply_logical_decoding,
							 PAPPLY_DECODING_AUTO, decoding_values,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".max_batch_transactions",
							"Limits how many remote transactions a writer applies as one local transaction.",
							"Batches are made only while there is a backlog; 1 turns them off.",
							&papply_max_batch_transactions,
							32, 1, 1000,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".max_writers_per_subscription",
							"Limits the number of writers of any one subscription.",
							NULL,
							&papply_max_writers_per_subscription,
							8, 1, PAPPLY_MAX_WRITERS,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".min_writers_per_subscription",
							"Sets the number of writers of a subscription that stay when they have nothing to do.",
							"Those beyond it leave after \"" PAPPLY_NAME ".writer_idle_timeout\" and come back when there is a backlog.",
							&papply_min_writers_per_subscription,
							PAPPLY_MAX_WRITERS, 1, PAPPLY_MAX_WRITERS,
							PGC_SIGHUP, 0,
							NULL, NULL, NULL);

	/*
	 * The lower bound leaves room for a few messages; a transaction that does
	 * not fit is applied while it is being received.
	 */
	DefineCustomIntVariable(PAPPLY_NAME ".queue_size",
							"Sets the shared memory for received transactions, for each subscription.",
							"A change takes effect when the subscription's writers are started next.",
							&papply_queue_size,
							32768, 64, 16 * 1024 * 1024,
							PGC_SIGHUP, GUC_UNIT_KB,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".writer_idle_timeout",
							"Sets the time after which a writer without work leaves.",
							"It has no effect on \"" PAPPLY_NAME ".min_writers_per_subscription\" writers of each subscription.",
							&papply_writer_idle_timeout,
							60000, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable(PAPPLY_NAME ".writers_per_subscription",
							"Sets the number of processes that apply a subscription.",
							"With 1, PostgreSQL's own apply worker does it alone.",
							&papply_writers_per_subscription,
							4, 1, PAPPLY_MAX_WRITERS,
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
