/*-------------------------------------------------------------------------
 * spool_parts.h
 *	  Track where subtransactions begin in a spool, and what is not read.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPOOL_PARTS_H
#define PAPPLY_SPOOL_PARTS_H

#include "parallel_apply.h"

#include "nodes/pg_list.h"
#include "utils/hsearch.h"

/* Parts of one spool; initially all zeros. */
typedef struct PapplySpoolParts
{
	HTAB	   *subxacts;		/* where each begins; NULL: there are none */
	TransactionId last_xid;		/* of the last one noted */
	TransactionId newest_xid;	/* of the one that began last */
	List	   *gaps;			/* what is not read, in order */
} PapplySpoolParts;

/* Note that a change of the subtransaction is about to be written there. */
extern void papply_spool_parts_note(PapplySpoolParts *parts, TransactionId xid,
									uint64 position);

/*
 * Roll back a subtransaction: what was written since it began, up to end, will
 * not be read.  Return false if nothing of it is left.
 */
extern bool papply_spool_parts_cut(PapplySpoolParts *parts, TransactionId xid, uint64 end);

/* Return where the last gap begins, if it ends at end; else return end. */
extern uint64 papply_spool_parts_tail(const PapplySpoolParts *parts, uint64 end);

/* Forget that gap, because the file was truncated there. */
extern void papply_spool_parts_drop_tail(PapplySpoolParts *parts);

/*
 * Return where to continue to read at that position. *gap is the number of
 * gaps passed, initially 0.
 */
extern uint64 papply_spool_parts_pass(const PapplySpoolParts *parts, int *gap,
									  uint64 position);

extern void papply_spool_parts_free(PapplySpoolParts *parts);

#endif							/* PAPPLY_SPOOL_PARTS_H */
