/*-------------------------------------------------------------------------
 * failed.c
 *	  Describe the transaction that the apply worker failed to apply.
 *
 * Runs in the receiver, with and without a pool, when PostgreSQL logs an
 * error.
 *
 * If a writer fails to apply a transaction, it is retried, in the end by the
 * native loop (PostgreSQL's own apply loop).  So an error of the native loop
 * is the one that counts, and the message that it is processing is the change
 * that fails.  The receiver knows that message, because it has passed it on.
 * As long as nothing fails, it only remembers where the message is.
 *
 * When the error is logged, the transaction is going to be rolled back and the
 * process to end.  No further error may be thrown then, so the message is read
 * by functions that do not trust its format.  If the server itself has spooled
 * the changes of a streamed transaction, the message is not the change that
 * fails.  Then the table is taken from the error, if the error names it.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "failed.h"
#include "message.h"
#include "remote_relation.h"
#include "statistics.h"
#include "text.h"

const char *papply_failed_message = NULL;
int			papply_failed_message_length = 0;

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
append_text(char *list, const char *text, int length)
{
	int			used = strlen(list);
	int			space = PAPPLY_FAILED_KEY_LENGTH - 1 - used;

	if (used > 0 && space > 2)
	{
		memcpy(list + used, ", ", 3);
		used += 2;
		space -= 2;
	}
	length = pg_mbcliplen(text, length, space);
	memcpy(list + used, text, length);
	list[used + length] = '\0';
}

/*
 * Read the key from the first row of a message, which is the one that
 * identifies the changed row: the new row of an INSERT, and the old row, or
 * its key, of other changes, unless the new row has the same key.
 */
static void
read_key(const LogicalRepRelation *remote, Rest *rest, Key *key)
{
	if (take_bytes(rest, 1 + 4 + 1 + 2) == NULL)	/* kind, relation, kind of
													 * row, number of columns */
		return;
	for (int i = 0; i < remote->natts; i++)
	{
		PapplyColumn column;
		char		value[PAPPLY_FAILED_KEY_LENGTH];
		int			length;

		if (!take_column(rest, &column))
			return;
		if (!bms_is_member(i, remote->attkeys))
			continue;
		append_text(key->names, remote->attnames[i], strlen(remote->attnames[i]));
		length = papply_message_show_column(&column, value, sizeof(value));
		append_text(key->values, value, length);
	}
}

static bool
is_change(char kind)
{
	return kind == LOGICAL_REP_MSG_INSERT || kind == LOGICAL_REP_MSG_UPDATE ||
		kind == LOGICAL_REP_MSG_DELETE;
}

void
papply_failed_describe_key(const LogicalRepRelation *remote, const char *message, int length,
						   char *text, int size)
{
	Rest		rest = {message, length};
	Key			key = {"", ""};
	char		described[sizeof(key) + 16];

	read_key(remote, &rest, &key);
	snprintf(described, sizeof(described), "(%s)=(%s)", key.names, key.values);
	papply_text_copy(text, key.names[0] == '\0' ? NULL : described, size);
}

static void
describe_change(PapplyFailedTransaction *failed, const char *message, int length)
{
	PapplyRemoteRelation *rel;

	if (!is_change(message[0]) || length < 5)
		return;
	rel = papply_remote_relation_get(papply_message_get_uint32(message + 1), false);
	if (rel == NULL)
		return;
	papply_text_copy(failed->schema_name, rel->remote->nspname, sizeof(failed->schema_name));
	papply_text_copy(failed->table_name, rel->remote->relname, sizeof(failed->table_name));
	papply_failed_describe_key(rel->remote, message, length, failed->key, sizeof(failed->key));
}

/*** the transaction ***/

void
papply_failed_note(const ErrorData *error)
{
	const PapplyLeader *leader = &papply_statistics_progress->leader;
	PapplyFailedTransaction failed;

	memset(&failed, 0, sizeof(failed));
	failed.remote_xid = leader->remote_xid;
	failed.final_lsn = leader->final_lsn;
	failed.commit_time = leader->commit_time;
	failed.failed_at = failed.first_failed_at = GetCurrentTimestamp();
	failed.attempts = 1;
	failed.changes = leader->changes;
	failed.sqlerrcode = error->sqlerrcode;
	papply_text_copy(failed.message, error->message, sizeof(failed.message));
	papply_text_copy(failed.detail, error->detail, sizeof(failed.detail));
	papply_text_copy(failed.schema_name, error->schema_name, sizeof(failed.schema_name));
	papply_text_copy(failed.table_name, error->table_name, sizeof(failed.table_name));
	failed.kind = papply_failed_message[0];
	describe_change(&failed, papply_failed_message, papply_failed_message_length);
	papply_statistics_note_failed(&failed);
}
