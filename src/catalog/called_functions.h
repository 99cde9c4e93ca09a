/*-------------------------------------------------------------------------
 * called_functions.h
 *	  Search an expression for the functions that it calls.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CALLED_FUNCTIONS_H
#define PAPPLY_CALLED_FUNCTIONS_H

#include "nodes/nodeFuncs.h"
#include "nodes/pg_list.h"

/*
 * Does the expression call a function that is wanted?  The expression is in
 * its stored form, not planned.  The constraints of its domains and the
 * defaults of arguments are searched too.  NULL calls no function.  The caller
 * is in a transaction.  No user code is run.
 */
extern bool papply_functions_find(Node *expr, check_function_callback is_wanted, void *context);

/*
 * Return the CHECK constraints of a type, if it is a domain, as expressions
 * that are not planned.  The caller is in a transaction.  No user code is run.
 */
extern List *papply_functions_domain_checks(Oid type);

#endif							/* PAPPLY_CALLED_FUNCTIONS_H */
