/*-------------------------------------------------------------------------
 * key_wait.c
 *	  Which keys has this writer waited for?
 *
 * Runs in a writer.
 *
 * The receiver knows which key makes a change depend on an older transaction,
 * and puts the name of the key into the queue.  The values of that key are
 * looked up only if a change had to wait, which takes longer anyway.  They are
 * shown as the publisher has sent them, as text, and cut off if they are long.
 *
 * The waits of a local transaction are added to the shared ones (hot_keys.c)
 * when it has ended, or when there are many.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_index.h"
#include "utils/syscache.h"

#include "account.h"
#include "hot_keys.h"
#include "key_wait.h"
#include "message.h"

#define MAX_WAITS 32

typedef struct Waits
{
	PapplyKeyWait items[MAX_WAITS];
	int			count;
	bool		is_open;		/* the change of items[count] is not known yet */
} Waits;

static Waits waits;

void
papply_key_wait_note(const PapplyKeyName *key, uint64 us)
{
	PapplyKeyWait *wait = &waits.items[waits.count];

	Assert(waits.count < MAX_WAITS);
	wait->key = *key;
	wait->us = us;
	waits.is_open = true;
}

/*
 * Return a column of the key's row, as PapplyRowKeys has hashed it, or NULL if
 * it was not sent.
 */
static const PapplyColumn *
column_of_key(const PapplyChange *change, bool is_old, int number)
{
	const PapplyTuple *old = change->has_old ? &change->old_tuple : NULL;
	const PapplyTuple *new = change->has_new && !is_old ? &change->new_tuple : NULL;

	if (new != NULL && number < new->ncolumns &&
		new->columns[number].kind != LOGICALREP_COLUMN_UNCHANGED)
		return &new->columns[number];
	if (old != NULL && number < old->ncolumns)
		return &old->columns[number];
	return NULL;
}

static void
append_column(StringInfo values, const PapplyColumn *column)
{
	static const PapplyColumn not_sent = {.kind = LOGICALREP_COLUMN_UNCHANGED};
	char		value[PAPPLY_KEY_VALUES_BYTES + 1];

	(void) papply_message_show_column(column ? column : &not_sent, value, sizeof(value));
	appendStringInfo(values, "%s%s", values->len > 0 ? ", " : "", value);
}

/* Append the columns of a unique index, unless it has been dropped. */
static void
append_columns_of_index(StringInfo values, PapplyTarget *target, const PapplyChange *change,
						const PapplyKeyName *key)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(key->index));
	Form_pg_index form;

	if (!HeapTupleIsValid(tuple))
		return;
	form = (Form_pg_index) GETSTRUCT(tuple);
	for (int i = 0; i < form->indnkeyatts && values->len < PAPPLY_KEY_VALUES_BYTES; i++)
	{
		AttrNumber	attnum = form->indkey.values[i];
		int			column = attnum > 0 ? target->inputs[attnum - 1].column : -1;

		append_column(values, column < 0 ? NULL :
					  column_of_key(change, key->is_old, column));
	}
	ReleaseSysCache(tuple);
}

/*
 * Append the columns of the replica identity, which are all columns if it is
 * FULL.
 */
static void
append_columns_of_identity(StringInfo values, PapplyTarget *target,
						   const PapplyChange *change, const PapplyKeyName *key)
{
	const LogicalRepRelation *remote = &target->entry->remoterel;

	for (int i = 0; i < remote->natts && values->len < PAPPLY_KEY_VALUES_BYTES; i++)
		if (remote->replident == REPLICA_IDENTITY_FULL || bms_is_member(i, remote->attkeys))
			append_column(values, column_of_key(change, key->is_old, i));
}

static void
set_values(PapplyKeyWait *wait, PapplyTarget *target, const PapplyChange *change)
{
	StringInfoData values;

	wait->values[0] = '\0';
	if (wait->key.hash == 0)
		return;
	initStringInfo(&values);
	if (OidIsValid(wait->key.index))
		append_columns_of_index(&values, target, change, &wait->key);
	else
		append_columns_of_identity(&values, target, change, &wait->key);
	papply_text_copy(wait->values, values.data, PAPPLY_KEY_VALUES_BYTES);
	pfree(values.data);
}

static void
add_waits(void)
{
	if (waits.count > 0)
		papply_hot_keys_add(waits.items, waits.count);
	waits.count = 0;
}

void
papply_key_wait_begin_change(PapplyTarget *target, const PapplyChange *change)
{
	PapplyKeyWait *wait = &waits.items[waits.count];

	if (likely(!waits.is_open))
		return;
	waits.is_open = false;
	papply_account_table_add(target, PAPPLY_TABLE_WAITS, 1);
	papply_account_table_add(target, PAPPLY_TABLE_WAIT_US, wait->us);
	wait->relid = target->local_relid;
	set_values(wait, target, change);
	if (++waits.count == MAX_WAITS)
		add_waits();
}

void
papply_key_wait_end_transaction(void)
{
	waits.is_open = false;
	add_waits();
}
