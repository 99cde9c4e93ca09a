/*-------------------------------------------------------------------------
 * room: writer
 *
 * kept_functions.h
 *	  Which functions may changes of a table call, but for its triggers?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_KEPT_FUNCTIONS_H
#define PAPPLY_KEPT_FUNCTIONS_H

#include "access/attmap.h"
#include "nodes/pg_list.h"
#include "utils/relcache.h"

typedef struct PapplyKeptFunctions
{
	bool		has_any;		/* one of the user's, which may call any */
	bool		is_restricted;	/* not every role may call each of them */
	List	   *hashes;			/* as invalidations name them */
} PapplyKeptFunctions;

/*
 * Those of rel, with its hashes in that memory context.  attnums, for each local column,
 * has the number of the published one or -1; NULL: all columns get their values
 * from elsewhere.  In a transaction; the current memory context gets what is read
 * for that.  No code of the user is run.
 */
extern PapplyKeptFunctions papply_kept_functions_of(Relation rel, const AttrMap *attnums,
													MemoryContext context);

/* Does a change of functions concern them, as an invalidation says?  0: of all. */
extern bool papply_kept_functions_concerns(const PapplyKeptFunctions *functions,
										   uint32 hashvalue);

/* May it depend on the roles that there are whether they can be called? */
extern bool papply_kept_functions_depend_on_roles(const PapplyKeptFunctions *functions);

#endif							/* PAPPLY_KEPT_FUNCTIONS_H */
