/*-------------------------------------------------------------------------
 * lookup_index.c
 *	  Which index finds the rows of a table?
 *
 * Runs in a writer.
 *
 * The replica identity, or else the primary key, of the local table finds a
 * row by its key, and no other column is compared, as in the core apply
 * loop.  A table that has neither is updated only if the publisher uses
 * REPLICA IDENTITY FULL, which sends all columns of the row.  Then any index
 * that does not miss the row can be used, and whole rows are compared.
 * PostgreSQL does so from 16 on, and reads the whole table before; here it is
 * the same for all majors.
 *
 * An index does not miss a row if its equality is the one that rows are
 * compared with: the operator of the type, with the collation of the column or
 * another one that distinguishes the same values.  PostgreSQL requires
 * neither, so with an index of collation "C" it does not find 'A' for 'a' in a
 * case-insensitive column.  It also does not find a NULL by a hash index, nor
 * a row by an index with a generated column.  Writers find these rows.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/amapi.h"
#include "access/genam.h"
#include "access/htup_details.h"
#include "catalog/pg_am.h"
#include "catalog/pg_index.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "lookup_index.h"
#include "target.h"

static Form_pg_attribute
column_of(Relation rel, AttrNumber attnum)
{
	return TupleDescAttr(RelationGetDescr(rel), attnum - 1);
}

/* Return the equality operator of a key column, or InvalidOid. */
static Oid
equality_of_index(Relation index, int column)
{
	Oid			type = index->rd_opcintype[column];

	return get_opfamily_member(index->rd_opfamily[column], type, type,
							   papply_compat_equality_strategy(index, column));
}

/* Return the equality operator that rows are compared with, or InvalidOid. */
static Oid
equality_of_type(Oid type)
{
	return lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;
}

static bool
is_deterministic(Oid collation)
{
	return !OidIsValid(collation) || get_collation_isdeterministic(collation);
}

/*
 * Does a search for a value in this column of the index find all equal ones?
 */
static bool
finds_all(Relation rel, Relation index, int column)
{
	AttrNumber	attnum = index->rd_index->indkey.values[column];
	Oid			collation = index->rd_indcollation[column];
	Form_pg_attribute att;

	if (attnum <= 0)
		return false;			/* an expression */
	att = column_of(rel, attnum);
	return !att->attgenerated &&
		equality_of_index(index, column) == equality_of_type(att->atttypid) &&
		(collation == att->attcollation ||
		 (is_deterministic(collation) && is_deterministic(att->attcollation)));
}

/*
 * Can the index be searched by its first column for what the publisher sends?
 */
static bool
is_usable(Relation rel, const AttrNumber *attnums, Relation index)
{
	Form_pg_index form = index->rd_index;
	Oid			method = index->rd_rel->relam;

	return (method == BTREE_AM_OID || method == HASH_AM_OID) &&
		form->indisvalid && form->indisready &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) &&
		finds_all(rel, index, 0) &&
		attnums[form->indkey.values[0] - 1] >= 0;
}

/* Does the index find at most one row? */
static bool
finds_one(Relation rel, Relation index)
{
	if (!index->rd_index->indisunique)
		return false;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		if (!finds_all(rel, index, i) ||
			!column_of(rel, index->rd_index->indkey.values[i])->attnotnull)
			return false;
	return true;
}

/*
 * Is this column compared?  Dropped columns are not, nor are generated ones,
 * which the publisher does not send.
 */
static bool
is_compared(Form_pg_attribute att)
{
	return !att->attisdropped && !att->attgenerated;
}

/*
 * Can all columns be compared?  Some, such as json, cannot; then the server's
 * own search reports that.
 */
static bool
can_compare_rows(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < desc->natts; i++)
		if (is_compared(TupleDescAttr(desc, i)) &&
			!OidIsValid(equality_of_type(TupleDescAttr(desc, i)->atttypid)))
			return false;
	return true;
}

Oid
papply_lookup_index_for_rows(Relation rel, const AttrNumber *attnums)
{
	List	   *indexes;
	Oid			usable = InvalidOid;
	bool		has_best = false;
	ListCell   *lc;

	if (!can_compare_rows(rel))
		return InvalidOid;
	indexes = RelationGetIndexList(rel);
	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		if (!has_best && is_usable(rel, attnums, index))
		{
			has_best = finds_one(rel, index);
			if (has_best || !OidIsValid(usable))
				usable = RelationGetRelid(index);
		}
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return usable;
}

static void
prepare_comparison(PapplyTarget *target)
{
	TupleDesc	desc = RelationGetDescr(target->rel);

	target->lookup.equality = palloc0(desc->natts * sizeof(FmgrInfo));
	for (int i = 0; i < desc->natts; i++)
		if (is_compared(TupleDescAttr(desc, i)))
			fmgr_info_cxt(get_opcode(equality_of_type(TupleDescAttr(desc, i)->atttypid)),
						  &target->lookup.equality[i], target->context);
}

static void
add_key(PapplyTarget *target, Relation index, int column)
{
	PapplyIndexKeys *lookup = &target->lookup;
	AttrNumber	attnum = index->rd_index->indkey.values[column];
	ScanKey		key = &lookup->keys[lookup->count];

	Assert(attnum > 0);
	target->inputs[attnum - 1].is_key = lookup->is_identity;
	lookup->attnums[lookup->count++] = attnum;
	ScanKeyInit(key, column + 1, papply_compat_equality_strategy(index, column),
				get_opcode(equality_of_index(index, column)), (Datum) 0);
	key->sk_collation = index->rd_indcollation[column];
}

void
papply_lookup_index_choose(PapplyTarget *target, const AttrNumber *attnums)
{
	PapplyIndexKeys *lookup = &target->lookup;
	Relation	index;

	lookup->index = papply_compat_identity_index(target->rel);
	lookup->is_identity = OidIsValid(lookup->index);
	lookup->count = 0;
	if (!lookup->is_identity)
	{
		lookup->index = papply_lookup_index_for_rows(target->rel, attnums);
		if (!OidIsValid(lookup->index))
			return;
		prepare_comparison(target);
	}
	index = index_open(lookup->index, AccessShareLock);
	lookup->finds_nulls = index->rd_indam->amsearchnulls;
	lookup->is_btree = index->rd_rel->relam == BTREE_AM_OID;
	for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
		if (lookup->is_identity || finds_all(target->rel, index, i))
			add_key(target, index, i);
	index_close(index, AccessShareLock);
}

bool
papply_lookup_index_has_other_unique(Relation rel)
{
	Oid			identity = papply_compat_identity_index(rel);
	List	   *indexes = RelationGetIndexList(rel);
	bool		result = false;
	ListCell   *lc;

	foreach(lc, indexes)
	{
		Relation	index = index_open(lfirst_oid(lc), AccessShareLock);

		result |= lfirst_oid(lc) != identity &&
			(index->rd_index->indisunique || index->rd_index->indisexclusion);
		index_close(index, AccessShareLock);
	}
	list_free(indexes);
	return result;
}
