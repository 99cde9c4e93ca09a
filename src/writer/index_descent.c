/*-------------------------------------------------------------------------
 * index_descent.c
 *	  Where a key is in a btree, found without reading its leaf page.
 *
 * Runs in a writer.
 *
 * An index scan reads the leaf page, and waits for it.  Who only wants to ask
 * storage for it descends to the page above and takes the block number from
 * there; pages above leaves are few, and in memory.  The server offers no such
 * search, but the parts of one.
 *
 * What is found is a hint.  So, where the server's search moves right because
 * a page was split after its parent was read, nothing is done here: the worst is
 * a page read in vain.
 *
 * Locking: as the access method, a page at a time, and none is kept.
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

/* The first item that is not less than the key; behind the last if all are. */
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
item(Page page, OffsetNumber offset)
{
	return (IndexTuple) PageGetItem(page, PageGetItemId(page, offset));
}

/* The child that the key belongs to; its first one stands for all that is less. */
static BlockNumber
child_for(Relation index, BTScanInsert key, Page page)
{
	OffsetNumber first = P_FIRSTDATAKEY(BTPageGetOpaque(page));
	OffsetNumber offset;

	if (P_IGNORE(BTPageGetOpaque(page)) || first > PageGetMaxOffsetNumber(page))
		return InvalidBlockNumber;
	offset = first_not_less(index, key, page);
	return BTreeTupleGetDownLink(item(page, Max(first, OffsetNumberPrev(offset))));
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
			*row = *BTreeTupleGetHeapTID(item(page, offset));
	}
	_bt_relbuf(index, buffer);
	return found;
}
