/*-------------------------------------------------------------------------
 * failed.h
 *	  Describe the transaction that the apply worker failed to apply.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FAILED_H
#define PAPPLY_FAILED_H

#include "message.h"
#include "remote_relation.h"

/*
 * The message that the core apply loop is processing, until it asks for the
 * next one.  Its data must stay in place until then.  kind is 0 if it is none of
 * a transaction.
 */
extern PapplyMessage papply_failed_message;

/*
 * Return the relation that this message changes a row of.  NULL: it is no such
 * message, or the relation is not known.
 */
extern PapplyRemoteRelation *papply_failed_relation(void);

/*
 * Called when an error of the transaction that the core apply loop applies is
 * being logged.  Remember what the view shows about it.
 */
extern void papply_failed_note(const ErrorData *error);

/*
 * Describe the key of that row as "(id)=(1)", truncated to size; empty if it
 * is not known.  Throws no error.
 */
extern void papply_failed_describe_key(const LogicalRepRelation *remote, char *text, int size);

#endif							/* PAPPLY_FAILED_H */
