/*-------------------------------------------------------------------------
 * intercepted.h
 *	  Detect tables whose rows another extension stores elsewhere.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_INTERCEPTED_H
#define PAPPLY_INTERCEPTED_H

/*
 * Return the kind of the table in such an extension, as a phrase for messages,
 * or NULL if it is an ordinary table.  The caller is in a transaction.
 */
extern const char *papply_intercepted_as(Oid relid);

#endif							/* PAPPLY_INTERCEPTED_H */
