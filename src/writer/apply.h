/*-------------------------------------------------------------------------
 * apply.h
 *	  From a change of the publisher to a change of a local row.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_APPLY_H
#define PAPPLY_APPLY_H

#include "target.h"

/*
 * Apply an INSERT, UPDATE or DELETE that was made with this version of its
 * relation.  message is the whole message, and is not modified.  Must be
 * called in a transaction with an active snapshot.  Returns false if the row
 * to change does not exist, in which case nothing has been changed.
 * is_last_look: everything older is committed, so a missing row is reported.
 * is_exclusive: user code that must not run alongside other transactions may
 * run.  Throws whatever applying the change throws.
 */
extern bool papply_apply_change(const char *message, int length, uint32 version,
								bool is_last_look, bool is_exclusive);

/*
 * Return the value of a column that is neither NULL nor unchanged.  A column
 * sent as text must be terminated (message.h).  Throws whatever the input
 * function throws.
 */
extern Datum papply_apply_input(PapplyTarget *target, Form_pg_attribute att,
								const PapplyColumn *column);

/*
 * Return the table ("schema.table" on the publisher) of the change that is
 * being applied, or NULL if there is none or it is not known yet.
 */
extern const char *papply_apply_table(void);

/* Return the relation whose rows were being changed when an error occurred. */
extern LogicalRepRelId papply_apply_relation(void);

/*
 * Begin a range of transactions.  Return whether since then it has changed
 * tables with user code (target.h), or has fired triggers or evaluated defaults
 * of apply mode exclusive, whose code may do anything.
 */
extern void papply_apply_begin_range(void);
extern bool papply_apply_has_user_code(void);
extern bool papply_apply_has_run_code(void);

/*
 * Call before user code runs that may do anything.  Throws an error if a writer
 * must not run it (session_state.h).
 */
extern void papply_apply_begin_code(void);

/*
 * Apply a TRUNCATE (truncate.c).  message is the whole message, whose relations have the
 * versions given to papply_target_use_version().  Must be called in a
 * transaction and in its turn.  Closes all targets.  Throws whatever applying
 * throws.
 */
extern void papply_truncate(char *message, int length);

#endif							/* PAPPLY_APPLY_H */
