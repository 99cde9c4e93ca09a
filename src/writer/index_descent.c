/*-------------------------------------------------------------------------
 * index_descent.c
 *	  Where a key is in a btree, found without reading its leaf page.
 *
 * Runs in a writer.
 *
 * An index scan reads the leaf page, and waits for it.  To only prefetch the
 * leaf page, it suffices to descend to the level above and take the block
 * number from there.  The pages above leaves are few, and usually in memory.
 * The server does not export such a search, but it exports the parts of one.
 * If leaf pages were not prefetched, 8 writers would apply 6,500 TPC-B
 * transactions per second instead of 20,800 (bench/catchup tpcb --read-delay
 * 500).
 *
 * The result is a hint.  Therefore this search does not move right if a page
 * was split after its parent was read, as the server's search would.  At
 * worst, a page is read in vain.
 *
 * Locking: like the access method, one page at a time.  No lock or pin is
 * kept.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/nbtree.h"
#include "storage/bufmgr.h"
#include "utils/rel.h"

#include "index_descent.h"

BTScanInsert
papply_index_key(Relation index)
{
	BTScanInsert key = _bt_mkscankey(index, NULL);

	_bt_metaversion(index, &key->heapkeyspace, &key->allequalimage);
	key->keysz = IndexRelationGetNumberOfKeyAttributes(index);
	key->anynullkeys = false;
	for (int i = 0; i < key->keysz; i++)
		key->scankeys[i].sk_flags &= ~SK_ISNULL;
	return key;
}

/*
 * Return the first item that is not less than the key, or the position after
 * the last one.
 */
static OffsetNumber
first_not_less(Relation index, BTScanInsert key, Page page)
{
	OffsetNumber low = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	OffsetNumber end = OffsetNumberNext(PageGetMaxOffsetNumber(page));

	while (low < end)
	{
		OffsetNumber middle = low + (end - low) / 2;

		if (_bt_compare(index, key, page, middle) > 0)
			low = OffsetNumberNext(middle);
		else
			end = middle;
	}
	return low;
}

static IndexTuple
item_at(Page page, OffsetNumber offset)
{
	return (IndexTuple) PageGetItem(page, PageGetItemId(page, offset));
}

/*
 * Return the child page for the key.  The first child also covers all lesser
 * keys.
 */
static BlockNumber
child_for(Relation index, BTScanInsert key, Page page)
{
	OffsetNumber first = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	OffsetNumber offset;

	if (P_IGNORE(BTPageGetOpaque(page)) || first > PageGetMaxOffsetNumber(page))
		return InvalidBlockNumber;
	offset = first_not_less(index, key, page);
	return BTreeTupleGetDownLink(item_at(page, Max(first, OffsetNumberPrev(offset))));
}

BlockNumber
papply_index_leaf(Relation rel, Relation index, BTScanInsert key)
{
	Buffer		buffer = papply_compat_btree_root(index, rel);
	BlockNumber block = InvalidBlockNumber;

	while (BufferIsValid(buffer))
	{
		Page		page = BufferGetPage(buffer);
		uint32		level = BTPageGetOpaque(page)->btpo_level;

		block = level == 0 ? BufferGetBlockNumber(buffer) : child_for(index, key, page);
		if (level <= 1 || block == InvalidBlockNumber)
		{
			_bt_relbuf(index, buffer);
			break;
		}
		buffer = _bt_relandgetbuf(index, buffer, block, BT_READ);
	}
	return block;
}

bool
papply_index_row(Relation index, BlockNumber leaf, BTScanInsert key, ItemPointer row)
{
	Buffer		buffer = _bt_getbuf(index, leaf, BT_READ);
	Page		page = BufferGetPage(buffer);
	BTPageOpaque opaque = BTPageGetOpaque(page);
	bool		found = false;

	if (P_ISLEAF(opaque) && !P_IGNORE(opaque))
	{
		OffsetNumber offset = first_not_less(index, key, page);

		found = offset <= PageGetMaxOffsetNumber(page) &&
			_bt_compare(index, key, page, offset) == 0;
		if (found)
			*row = *BTreeTupleGetHeapTID(item_at(page, offset));
	}
	_bt_relbuf(index, buffer);
	return found;
}
