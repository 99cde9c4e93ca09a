/*-------------------------------------------------------------------------
 * room: writer
 *
 * conflict.h
 *	  Conflicts that PostgreSQL 18 and later report without failing.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CONFLICT_H
#define PAPPLY_CONFLICT_H

#include "target.h"

/*
 * Return whether the row that was found (in local_slot of table, which is the
 * target or its partition), or its absence, is a conflict.  A row is one if
 * another origin has written it; *writer is set then.  A missing row is one
 * from PostgreSQL 18 on.
 */
extern bool papply_conflict_exists(PapplyTarget *table, bool is_found,
								   PapplyRowWriter *writer);

/*
 * Note the conflict of an UPDATE or DELETE.  remote_slot has the row that was
 * searched for.
 */
extern void papply_conflict_note(PapplyTarget *target, PapplyTarget *table,
								 char message_type, bool is_found,
								 const PapplyRowWriter *writer);

/* Add the new row, in remote_slot of the same table, to the last note. */
extern void papply_conflict_note_new_row(PapplyTarget *table);

/*
 * Return whether the notes are so large that they should be reported, in turn,
 * before the next change.
 */
extern bool papply_conflict_must_report(void);

/*
 * Report and count all conflicts noted.  Must be called in turn and in a
 * transaction.  May throw an error; the notes must be dropped after that.
 */
extern void papply_conflict_report_all(void);

/* Drop all notes, at the beginning of a transaction. */
extern void papply_conflict_forget_all(void);

#endif							/* PAPPLY_CONFLICT_H */
