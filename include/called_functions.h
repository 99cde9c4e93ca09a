/*-------------------------------------------------------------------------
 * room: pool
 *
 * called_functions.h
 *	  Which functions does an expression call?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CALLED_FUNCTIONS_H
#define PAPPLY_CALLED_FUNCTIONS_H

#include "nodes/nodeFuncs.h"
#include "nodes/pg_list.h"

/*
 * Is one of them wanted?  The expression is as it is stored, not planned; what the
 * constraints of domains in it call, and defaults of arguments, counts.  NULL calls
 * none.  In a transaction; no code of the user is run.
 */
extern bool papply_functions_find(Node *expr, check_function_callback is_wanted, void *context);

/*
 * The CHECK constraints of a type, if it is a domain: expressions that are not
 * planned.  As above.
 */
extern List *papply_functions_domain_checks(Oid type);

#endif							/* PAPPLY_CALLED_FUNCTIONS_H */
