/*-------------------------------------------------------------------------
 * lookup.h
 *	  Look something up in the catalogs, in or outside of a transaction.
 *
 * Processes that apply changes look up catalogs while a transaction is open,
 * and also between two.  Then the lookup is a transaction of its own.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOOKUP_H
#define PAPPLY_LOOKUP_H

#include "access/xact.h"

typedef struct PapplyLookup
{
	MemoryContext context;		/* of the caller */
	bool		has_begun;		/* a transaction, which ends with the lookup */
} PapplyLookup;

/*
 * Begin a lookup.  What it allocates without another context may not outlive
 * it.
 */
static inline PapplyLookup
papply_lookup_begin(void)
{
	PapplyLookup lookup = {CurrentMemoryContext, !IsTransactionState()};

	if (lookup.has_begun)
		StartTransactionCommand();
	return lookup;
}

/* End it, and switch back to the memory context of the caller. */
static inline void
papply_lookup_end(PapplyLookup lookup)
{
	if (lookup.has_begun)
		CommitTransactionCommand();
	MemoryContextSwitchTo(lookup.context);
}

#endif							/* PAPPLY_LOOKUP_H */
