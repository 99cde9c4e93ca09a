/*-------------------------------------------------------------------------
 * failed.c
 *	  Describe the transaction that the apply worker failed to apply.
 *
 * Runs in the receiver, with and without a pool, when PostgreSQL logs an
 * error.
 *
 * If a writer fails to apply a transaction, it is retried, in the end by the
 * core apply loop.  So an error of the core apply loop is the one that counts,
 * and the message that it is processing is the change that fails.  The
 * receiver knows that message, because it has passed it on.  As long as
 * nothing fails, it only remembers where the message is.  If it
 * has many changes, the next attempts are left to the core apply loop at once.
 *
 * When the error is logged, the transaction is going to be rolled back and the
 * process to end.  No further error may be thrown then, so the message is read
 * by functions that do not trust its format.  If the server itself has spooled
 * the changes of a streamed transaction, the message is not the change that
 * fails.  Then the table is taken from the error, if the error names it.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/timestamp.h"

#include "failed.h"
#include "pool.h"
#include "statistics.h"

PapplyMessage papply_failed_message;

PapplyRemoteRelation *
papply_failed_relation(void)
{
	switch (papply_failed_message.kind)
	{
		case LOGICAL_REP_MSG_INSERT:
		case LOGICAL_REP_MSG_UPDATE:
		case LOGICAL_REP_MSG_DELETE:
			return papply_remote_relation_get(papply_failed_message.id, false);
		default:
			return NULL;
	}
}

/*** the key of the row ***/

/* The unread part of a message. */
typedef struct Rest
{
	const char *position;
	int			length;
} Rest;

/* Take length bytes; return NULL if there are fewer. */
static const char *
take_bytes(Rest *rest, int length)
{
	const char *position = rest->position;

	if (length < 0 || length > rest->length)
		return NULL;
	rest->position += length;
	rest->length -= length;
	return position;
}

/* Take the next column.  Return false if there is none. */
static bool
take_column(Rest *rest, PapplyColumn *column)
{
	const char *kind = take_bytes(rest, 1);
	const char *size;

	if (kind == NULL)
		return false;
	column->kind = *kind;
	if (*kind != LOGICALREP_COLUMN_TEXT && *kind != LOGICALREP_COLUMN_BINARY)
		return true;
	size = take_bytes(rest, 4);
	if (size == NULL)
		return false;
	column->length = papply_message_get_uint32(size);
	column->data = unconstify(char *, take_bytes(rest, column->length));
	return column->data != NULL;
}

/* "(a, b)=(1, 2)", truncated if it is too long. */
typedef struct Key
{
	char		names[PAPPLY_FAILED_KEY_LENGTH];
	char		values[PAPPLY_FAILED_KEY_LENGTH];
} Key;

static void
append_text(char *list, const char *text)
{
	size_t		used = strlen(list);

	if (used > 0)
		used = strlcat(list, ", ", PAPPLY_FAILED_KEY_LENGTH);
	if (used < PAPPLY_FAILED_KEY_LENGTH)
		papply_text_copy(list + used, text, PAPPLY_FAILED_KEY_LENGTH - used);
}

/*
 * Read the key from the first row of a message, which is the one that
 * identifies the changed row: the new row of an INSERT, and the old row, or
 * its key, of other changes, unless the new row has the same key.
 */
static void
read_key(const LogicalRepRelation *remote, Rest *rest, Key *key)
{
	if (take_bytes(rest, PAPPLY_MESSAGE_BODY + 1 + 2) == NULL)	/* kind of row, number
																 * of columns */
		return;
	for (int i = 0; i < remote->natts; i++)
	{
		PapplyColumn column;
		char		value[PAPPLY_FAILED_KEY_LENGTH];

		if (!take_column(rest, &column))
			return;
		if (!bms_is_member(i, remote->attkeys))
			continue;
		append_text(key->names, remote->attnames[i]);
		(void) papply_message_show_column(&column, value, sizeof(value));
		append_text(key->values, value);
	}
}

void
papply_failed_describe_key(const LogicalRepRelation *remote, char *text, int size)
{
	Rest		rest = {papply_failed_message.data, papply_failed_message.length};
	Key			key = {"", ""};
	char		described[sizeof(key) + 16];

	read_key(remote, &rest, &key);
	snprintf(described, sizeof(described), "(%s)=(%s)", key.names, key.values);
	papply_text_copy(text, key.names[0] == '\0' ? NULL : described, size);
}

/*** the transaction ***/

void
papply_failed_note(const ErrorData *error)
{
	const PapplyLeader *leader = &papply_statistics_progress->leader;
	const PapplyRemoteRelation *rel = papply_failed_relation();
	const char *schema_name = rel != NULL ? rel->remote->nspname : error->schema_name;
	const char *table_name = rel != NULL ? rel->remote->relname : error->table_name;
	PapplyFailedTransaction failed = {0};

	failed.remote_xid = leader->remote_xid;
	failed.final_lsn = leader->final_lsn;
	failed.commit_time = leader->commit_time;
	failed.failed_at = failed.first_failed_at = GetCurrentTimestamp();
	failed.attempts = 1;
	failed.changes = leader->changes;
	failed.sqlerrcode = error->sqlerrcode;
	papply_text_copy(failed.message, error->message, sizeof(failed.message));
	papply_text_copy(failed.detail, error->detail, sizeof(failed.detail));
	papply_text_copy(failed.context, error->context, sizeof(failed.context));
	papply_text_copy(failed.schema_name, schema_name, sizeof(failed.schema_name));
	papply_text_copy(failed.table_name, table_name, sizeof(failed.table_name));
	papply_text_copy(failed.error_schema_name, error->schema_name, sizeof(failed.error_schema_name));
	papply_text_copy(failed.error_table_name, error->table_name, sizeof(failed.error_table_name));
	failed.kind = papply_failed_message.kind;
	if (rel != NULL)
		papply_failed_describe_key(rel->remote, failed.key, sizeof(failed.key));
	papply_statistics_note_failed(&failed);
	if (papply_statistics_is_failed(failed.remote_xid))
		papply_pool_set_fallback(failed.final_lsn);
}
