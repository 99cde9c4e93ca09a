/*-------------------------------------------------------------------------
 * conflict.h
 *	  Conflicts that do not fail.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_CONFLICT_H
#define PAPPLY_CONFLICT_H

#include "target.h"

/* Return the key of a row of the publisher, in the current memory context. */
extern const char *papply_conflict_key(PapplyTarget *target, const PapplyTuple *tuple);

/*
 * Note the conflict of an UPDATE or DELETE.  table is the target or its
 * partition: local_slot has the row that was found, remote_slot the one that
 * was searched for.
 */
extern void papply_conflict_note(PapplyTarget *target, PapplyTarget *table,
								 char message_type, bool is_found,
								 const PapplyRowWriter *writer, const char *key);

/* Add the new row, in remote_slot of the same table, to the last note. */
extern void papply_conflict_note_new_row(PapplyTarget *table);

/*
 * Return whether the notes are so large that they should be reported, in turn,
 * before the next change.
 */
extern bool papply_conflict_must_report(void);

/*
 * Report all conflicts noted.  Must be called in turn and in a
 * transaction.  May throw an error; the notes must be dropped after that.
 */
extern void papply_conflict_report_all(void);

/* Drop all notes, at the beginning of a transaction. */
extern void papply_conflict_forget_all(void);

#endif							/* PAPPLY_CONFLICT_H */
