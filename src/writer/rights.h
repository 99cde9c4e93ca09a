/*-------------------------------------------------------------------------
 * rights.h
 *	  Does the user have the rights on the tables that a transaction changes?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RIGHTS_H
#define PAPPLY_RIGHTS_H

#include "target.h"

/* Call once in a writer, when it is connected. */
extern void papply_rights_init(void);

/* Begin a range of transactions. */
extern void papply_rights_begin_range(void);

/*
 * Throw an error if the user does not have all these rights on the table,
 * which must be open.
 */
extern void papply_rights_check(PapplyTarget *target, AclMode rights);
extern void papply_rights_check_relation(Relation rel, AclMode rights);

/*
 * Are the rights that papply_rights_check() has found since the range began
 * still there, as far as invalidations have been accepted?  Must be called in
 * a transaction if any rights were found.
 */
extern bool papply_rights_are_current(void);

#endif							/* PAPPLY_RIGHTS_H */
