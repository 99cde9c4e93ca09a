/*-------------------------------------------------------------------------
 * row_keys.c
 *	  Compute the keys of the rows (and unique values) that a change touches.
 *
 * Runs in the receiver.
 *
 * A row is identified by the columns of the publisher's replica identity, old
 * and new; with REPLICA IDENTITY FULL, by all columns.  Further keys are the
 * local unique indexes, as far as the message carries their columns: two
 * transactions that pass a unique value from one row to another must not
 * overtake each other.  Keys are hashed from the bytes as they were sent,
 * because the same row of the publisher always has the same bytes.
 *
 * Some conflicts cannot be seen here: those over expression and partial
 * indexes, exclusion constraints, values that are equal but have different
 * bytes, and the old value of a unique column that the message does not carry.
 * They show when the changes are applied, as a lock wait, a missing row or a
 * unique violation, and are resolved then.  This is safe, but must be rare to
 * be fast.
 *
 * Rows of different relations of the publisher have different keys, but may be
 * in the same local table: one relation has the name of a local partitioned
 * table, and another one that of its partition.  Such a conflict cannot be
 * seen here either, nor can one over a unique index of a single partition.
 * But each change ends up in one partition, and finds and locks its row there,
 * or enters its unique values there.  If a younger transaction T has been
 * there before an older one S, there are three cases:
 * - S finds the row that T has changed, deleted, inserted, or moved from or to
 *   there, because dirty snapshots and unique indexes show it.  S waits for
 *   T's lock, and T, the younger one, yields.
 * - T has not found a row that S inserts or moves there.  T looks again in its
 *   turn.
 * - T enters a unique value that S removes.  T gets a violation, and is
 *   retried in its turn.  A row that moves between partitions which are
 *   published themselves is a DELETE in one relation and an INSERT in another.
 *   Both are in one transaction, so later changes in either relation depend on
 *   that transaction.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/genam.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "common/hashfn.h"
#include "nodes/bitmapset.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

#include "row_keys.h"

/* Stands for NULL in a hash; no value has this length. */
#define NULL_MARK (-1)

void
papply_row_keys_init(PapplyRowKeys *keys, const LogicalRepRelation *remote)
{
	PapplyKey  *key = &keys->keys[0];
	int			column = -1;

	memset(keys, 0, sizeof(*keys));
	keys->old_is_whole = (remote->replident == REPLICA_IDENTITY_FULL);
	keys->identity = remote->attkeys;
	keys->seed = hash_bytes_extended((const unsigned char *) remote->relname,
									 strlen(remote->relname),
									 hash_bytes((const unsigned char *) remote->nspname,
												strlen(remote->nspname)));

	/*
	 * the identity has up to INDEX_MAX_KEYS columns, or with FULL all columns
	 */
	if (bms_is_empty(remote->attkeys) && !keys->old_is_whole)
		return;
	if (!keys->old_is_whole && (remote->natts > MaxTupleAttributeNumber ||
								bms_num_members(remote->attkeys) > INDEX_MAX_KEYS))
	{
		keys->is_unknown = true;
		return;
	}
	key->null_is_value = true;
	key->seed = keys->seed;
	if (!keys->old_is_whole)
		while ((column = bms_next_member(remote->attkeys, column)) >= 0)
			key->columns[key->ncolumns++] = column;
	keys->nkeys = 1;
}

const char *
papply_row_keys_why_untracked(Relation index, const AttrNumber *attnums)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisvalid)
		return "is not valid";
	if (!heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL))
		return "is partial";
	if (!heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL))
		return "has an expression";
	for (int i = 0; i < form->indnkeyatts; i++)
	{
		AttrNumber	attnum = form->indkey.values[i];

		if (attnum <= 0 || attnums[attnum - 1] < 0)
			return "has a column that is not published";
	}
	return NULL;
}

/*
 * Map the columns of an index to published ones; false if it is not tracked.
 */
static bool
make_unique_key(PapplyKey *key, Relation index, const AttrNumber *attnums)
{
	Form_pg_index form = index->rd_index;

	if (!form->indisunique || papply_row_keys_why_untracked(index, attnums) != NULL)
		return false;
	key->null_is_value = form->indnullsnotdistinct;
	key->ncolumns = form->indnkeyatts;
	for (int i = 0; i < form->indnkeyatts; i++)
		key->columns[i] = attnums[form->indkey.values[i] - 1];
	return true;
}

static bool
is_identity(const PapplyRowKeys *keys, const PapplyKey *key)
{
	Bitmapset  *columns = NULL;

	for (int i = 0; i < key->ncolumns; i++)
		columns = bms_add_member(columns, key->columns[i]);
	return !keys->old_is_whole && bms_equal(columns, keys->identity);
}

void
papply_row_keys_add_unique(PapplyRowKeys *keys, Relation rel, const AttrNumber *attnums)
{
	ListCell   *lc;

	foreach(lc, RelationGetIndexList(rel))
	{
		Relation	index;
		PapplyKey  *key = &keys->keys[keys->nkeys];

		if (keys->nkeys == PAPPLY_MAX_KEYS)
			break;
		/* The receiver must not wait.  Leaving out an index is safe. */
		if (!ConditionalLockRelationOid(lfirst_oid(lc), AccessShareLock))
			continue;
		index = index_open(lfirst_oid(lc), NoLock);
		if (make_unique_key(key, index, attnums) && !is_identity(keys, key))
		{
			key->index = RelationGetRelid(index);
			key->seed = hash_combine64(keys->seed, key->index);
			keys->nkeys++;
		}
		index_close(index, AccessShareLock);
	}
}

static uint64
hash_column(uint64 hash, const PapplyColumn *column)
{
	int			length = column->kind == LOGICALREP_COLUMN_NULL ? NULL_MARK : column->length;

	hash = hash_combine64(hash, length);
	if (length > 0)
		hash = hash_bytes_extended((const unsigned char *) column->data, length, hash);
	return hash;
}

/*
 * Does an old tuple carry this column?  A tuple with only the key has NULL for
 * all other columns.
 */
static bool
old_has(const PapplyRowKeys *keys, const PapplyTuple *old, int number)
{
	return old != NULL && number < old->ncolumns &&
		old->columns[number].kind != LOGICALREP_COLUMN_UNCHANGED &&
		(keys->old_is_whole || bms_is_member(number, keys->identity));
}

/*
 * Add the hash of one key of a row: of its new tuple, with unchanged values
 * from the old one, or of the old tuple if there is no new one.
 */
static void
add_hash(const PapplyRowKeys *keys, const PapplyKey *key,
		 const PapplyTuple *new, const PapplyTuple *old, PapplyHashes *result)
{
	const PapplyTuple *tuple = new ? new : old;
	bool		of_identity = !OidIsValid(key->index);
	bool		all_columns = of_identity && keys->old_is_whole;
	int			ncolumns = all_columns ? tuple->ncolumns : key->ncolumns;
	uint64		hash = key->seed;

	Assert(result->count < PAPPLY_MAX_HASHES);
	for (int i = 0; i < ncolumns; i++)
	{
		int			number = all_columns ? i : key->columns[i];
		const PapplyColumn *column = NULL;

		if (new != NULL && number < new->ncolumns &&
			new->columns[number].kind != LOGICALREP_COLUMN_UNCHANGED)
			column = &new->columns[number];
		else if (old_has(keys, old, number))
			column = &old->columns[number];

		if (column == NULL)
		{
			result->is_incomplete |= of_identity;
			return;
		}
		if (column->kind == LOGICALREP_COLUMN_NULL && !key->null_is_value)
			return;
		hash = hash_column(hash, column);
	}
	result->keys[result->count] = key - keys->keys;
	result->is_old[result->count] = new == NULL;
	result->hashes[result->count++] = hash;
}

void
papply_row_keys_compute(const PapplyRowKeys *keys, const PapplyChange *change,
						PapplyHashes *result)
{
	const PapplyTuple *old = change->has_old ? &change->old_tuple : NULL;
	const PapplyTuple *new = change->has_new ? &change->new_tuple : NULL;

	result->is_incomplete = keys->is_unknown;
	result->count = 0;
	for (int i = 0; i < keys->nkeys; i++)
	{
		if (old != NULL)
			add_hash(keys, &keys->keys[i], NULL, old, result);
		if (new != NULL)
			add_hash(keys, &keys->keys[i], new, old, result);
	}
}
