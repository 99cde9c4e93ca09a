/*-------------------------------------------------------------------------
 * room: receiver
 *
 * spool_parts.h
 *	  Where subtransactions begin in a spool, and what of it is not read.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_SPOOL_PARTS_H
#define PAPPLY_SPOOL_PARTS_H

#include "parallel_apply.h"

#include "nodes/pg_list.h"
#include "utils/hsearch.h"

/* Of one spool; begins as zeros. */
typedef struct PapplySpoolParts
{
	HTAB	   *subxacts;		/* where each begins; NULL: there are none */
	List	   *subxids;		/* as Oids, in the order that they began */
	List	   *gaps;			/* what is not read, in order */
} PapplySpoolParts;

/* A change of that subtransaction is about to be written there. */
extern void papply_spool_parts_note(PapplySpoolParts *parts, TransactionId xid,
									uint64 position);

/*
 * A subtransaction is rolled back: what has been written since it began, up to end, is not
 * read.  Returns false if nothing of it is there.
 */
extern bool papply_spool_parts_cut(PapplySpoolParts *parts, TransactionId xid, uint64 end);

/* Where does what is not read, up to end, begin?  Returns end if there is no such. */
extern uint64 papply_spool_parts_tail(const PapplySpoolParts *parts, uint64 end);

/* That has been given back. */
extern void papply_spool_parts_drop_tail(PapplySpoolParts *parts);

/*
 * Where to read on at that position.  *gap is how much was passed over, at first 0.
 */
extern uint64 papply_spool_parts_pass(const PapplySpoolParts *parts, int *gap,
									  uint64 position);

extern void papply_spool_parts_free(PapplySpoolParts *parts);

#endif							/* PAPPLY_SPOOL_PARTS_H */
