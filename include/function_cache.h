/*-------------------------------------------------------------------------
 * function_cache.h
 *	  Which functions and types may changes of a table use, apart from its
 *	  triggers?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FUNCTION_CACHE_H
#define PAPPLY_FUNCTION_CACHE_H

#include "access/attmap.h"
#include "nodes/nodeFuncs.h"
#include "nodes/pg_list.h"
#include "utils/inval.h"
#include "utils/relcache.h"

typedef struct PapplyFunctionCache
{
	bool		has_any;		/* includes a user's function, which may call
								 * any */
	bool		has_user_code;	/* the same, or an expression calls a volatile
								 * function */
	bool		is_restricted;	/* not every role may call each of them */
	bool		has_role_names; /* an expression has the name of a role, such
								 * as the current user's */
	bool		has_object_names;	/* names of other objects are looked up */
	List	   *hashes;			/* of their OIDs, as in invalidations */
	List	   *types;			/* types that can be altered, with those that
								 * they consist of */
	List	   *composites;		/* pg_class OIDs of the composite types */
	bool		has_enums;
} PapplyFunctionCache;

/*
 * Return the functions and types of rel, with lists in the given memory context.
 * For each local column, attnums has the number of the published one or -1;
 * NULL: no column gets its default here.  Must be called in a transaction.
 * Other allocations are made in the current memory context.  Runs no user
 * code.
 */
extern PapplyFunctionCache papply_function_cache_of(Relation rel, const AttrMap *attnums,
													MemoryContext context);

/*
 * Have the callback called whenever something may have changed that such functions and
 * types depend on.  A change of a composite type is reported by the relation cache only.
 */
extern void papply_function_cache_watch(SyscacheCallbackFunction callback);

/*
 * Does an invalidation that such a callback is called for concern these?  Accesses no
 * catalog.
 */
extern bool papply_function_cache_concerns(const PapplyFunctionCache *functions, int cacheid,
										   uint32 hashvalue);

/*
 * Does the expression call a function that is wanted?  The expression is in
 * its stored form, not planned.  The constraints of its domains and the
 * defaults of arguments are searched too.  NULL calls no function.  The caller
 * is in a transaction.  No user code is run.
 */
extern bool papply_function_cache_find(Node *expr, check_function_callback is_wanted,
									   void *context);

#endif							/* PAPPLY_FUNCTION_CACHE_H */
