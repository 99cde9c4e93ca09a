/*-------------------------------------------------------------------------
 * row_lookup.h
 *	  Find the local row of a change.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROW_LOOKUP_H
#define PAPPLY_ROW_LOOKUP_H

#include "target.h"

/*
 * Find the row that equals target->remote_slot (in its key, or as a whole if
 * there is none), and store it in target->local_slot.  Returns false if there
 * is none.  Waits for transactions in progress that have changed it.
 * must_lock: lock the row as the core apply loop does, so that no other
 * transaction changes it before us; otherwise such a change raises an error.
 */
extern bool papply_row_lookup(PapplyTarget *target, bool must_lock);

/*
 * Release all page pins, because this process may wait.  Clears the slots too.
 */
extern void papply_row_lookup_release(PapplyTarget *target);

/* End the scan of the local transaction. */
extern void papply_row_lookup_end(PapplyTarget *target);

#endif							/* PAPPLY_ROW_LOOKUP_H */
