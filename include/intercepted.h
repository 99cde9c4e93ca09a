/*-------------------------------------------------------------------------
 * room: pool
 *
 * intercepted.h
 *	  Does another extension keep the rows of a table somewhere else?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_INTERCEPTED_H
#define PAPPLY_INTERCEPTED_H

/*
 * Return what the table is in such an extension, as a phrase for messages, or NULL if
 * it is an ordinary one.  In a transaction.
 */
extern const char *papply_intercepted_as(Oid relid);

#endif							/* PAPPLY_INTERCEPTED_H */
