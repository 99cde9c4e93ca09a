/*-------------------------------------------------------------------------
 * room: writer
 *
 * rights.h
 *	  May the user change the tables as the transaction does?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RIGHTS_H
#define PAPPLY_RIGHTS_H

#include "target.h"

/* Once in a writer, connected. */
extern void papply_rights_init(void);

/* A range of transactions begins. */
extern void papply_rights_begin_range(void);

/* Throw if the user has not all of these rights on the table, which is open. */
extern void papply_rights_check(PapplyTarget *target, AclMode rights);
extern void papply_rights_check_relation(Relation rel, AclMode rights);

/*
 * Are the rights that papply_rights_check() has found since the range began still
 * there, as far as invalidations have been accepted?  In a transaction, if any were.
 */
extern bool papply_rights_are_current(void);

#endif							/* PAPPLY_RIGHTS_H */
