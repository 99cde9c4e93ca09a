/*-------------------------------------------------------------------------
 * change_statements.h
 *	  Changes of a remote transaction as SQL statements.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CHANGE_STATEMENTS_H
#define PAPPLY_CHANGE_STATEMENTS_H

#include "fmgr.h"

#include "parallel_apply.h"

/*
 * Return the next message of a transaction, valid until the next call, or
 * NULL.
 */
typedef char *(*PapplyNextMessage) (void *source, int *length);

/*
 * Return the changes of all messages as the result of a set-returning function:
 * a number and a statement.  Throws an error if the user may not read a table.
 * subid is that of the messages if they were stored, so that tables may have been
 * renamed since, else InvalidOid.
 * Returns the number of messages other than definitions of relations.
 */
extern uint64 papply_change_statements_put(FunctionCallInfo fcinfo, Oid subid,
										   PapplyNextMessage next, void *source);

#endif							/* PAPPLY_CHANGE_STATEMENTS_H */
