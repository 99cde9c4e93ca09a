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
 * Is it a conflict, if a row was found (in local_slot of table, the target or its
 * partition) or not?  It is if another origin has written it, who is told in
 * *writer.
 */
extern bool papply_conflict_exists(PapplyTarget *table, bool is_found,
								   PapplyRowWriter *writer);

/* Note it, of an UPDATE or DELETE; remote_slot has the row that was searched for. */
extern void papply_conflict_note(PapplyTarget *target, PapplyTarget *table,
								 char message_type, bool is_found,
								 const PapplyRowWriter *writer);

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
