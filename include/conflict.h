/*-------------------------------------------------------------------------
 * room: writer
 *
 * conflict.h
 *	  Conflicts that PostgreSQL reports and goes on after (18 and later).
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CONFLICT_H
#define PAPPLY_CONFLICT_H

#include "target.h"

/*
 * Note the conflict of an UPDATE or DELETE, if it is one: was the row that was
 * found (in local_slot of table, the target or its partition) written by
 * another origin, or was none found?  remote_slot has the row that was searched
 * for.  Returns true if the new row of an UPDATE is wanted, too.
 */
extern bool papply_conflict_note(PapplyTarget *target, PapplyTarget *table,
								 char message_type, bool is_found);

/* The new row of the conflict noted last, in remote_slot of the same table. */
extern void papply_conflict_note_new_row(PapplyTarget *table);

/* So much is noted that it should be reported, in turn, before more comes. */
extern bool papply_conflict_must_report(void);

/*
 * Report and count what was noted, in turn, in a transaction.  May throw: then
 * what was reported is forgotten, too.
 */
extern void papply_conflict_report_all(void);

/* Forget what was noted, at the begin of a transaction. */
extern void papply_conflict_forget_all(void);

#endif							/* PAPPLY_CONFLICT_H */
