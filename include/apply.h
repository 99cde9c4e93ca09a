/*-------------------------------------------------------------------------
 * room: writer
 *
 * apply.h
 *	  From a change of the publisher to a change of a local row.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_APPLY_H
#define PAPPLY_APPLY_H

#include "target.h"

/*
 * Apply an INSERT, UPDATE or DELETE (whole message, which is not modified) made
 * with that version of its relation.  In a transaction with an active
 * snapshot.  Returns false if the row to change does not exist; nothing has
 * been changed then.  is_last_look: everything older is committed, so that is
 * reported.  is_alone: user code that must not run beside other transactions
 * may run.  Throws whatever applying throws.
 */
extern bool papply_apply_change(const char *message, int length, uint32 version,
								bool is_last_look, bool is_alone);

/*
 * The value of a column, neither NULL nor unchanged, as it was sent; if it is text
 * it is terminated (message.h).  Throws what the input function throws.
 */
extern Datum papply_apply_input(PapplyTarget *target, Form_pg_attribute att,
								const PapplyColumn *column);

/* The table ("schema.table" on the publisher) of that change; NULL: none yet. */
extern const char *papply_apply_table(void);

/* Return the relation whose rows were changed last, when an error has ended that. */
extern LogicalRepRelId papply_apply_relation(void);

/* A range of transactions begins; and has it run code of the user since then? */
extern void papply_apply_begin_range(void);
extern bool papply_apply_has_run_code(void);

/* Code of the user is about to run.  Throws if it may not, see session_locks.h. */
extern void papply_apply_begin_code(void);

#endif							/* PAPPLY_APPLY_H */
