/*-------------------------------------------------------------------------
 * room: writer
 *
 * row_lookup.h
 *	  Find the local row that a change is about.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_ROW_LOOKUP_H
#define PAPPLY_ROW_LOOKUP_H

#include "target.h"

/*
 * Find the row that equals target->remote_slot (in its key, or without one as a
 * whole), into
 * target->local_slot.  Waits for others who have changed it and are not done.
 * must_lock: lock it as the native worker does, so that nobody changes it
 * before we do; otherwise a change in between shows itself as an error.
 */
extern bool papply_row_lookup(PapplyTarget *target, bool must_lock);

/* Keep no page pinned while this process may wait; the slots are cleared too. */
extern void papply_row_lookup_release(PapplyTarget *target);

/* End the scan of the local transaction. */
extern void papply_row_lookup_end(PapplyTarget *target);

#endif							/* PAPPLY_ROW_LOOKUP_H */
