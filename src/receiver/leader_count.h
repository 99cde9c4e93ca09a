/*-------------------------------------------------------------------------
 * leader_count.h
 *	  Count what the apply worker itself applies.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LEADER_COUNT_H
#define PAPPLY_LEADER_COUNT_H

#include "parallel_apply.h"

/*
 * Count a message that the core apply loop is about to get, of that kind; it
 * is papply_failed_message.
 */
extern void papply_leader_count_message(char kind, bool has_pool);

/*
 * The core apply loop asks for the next message: look whether it found the row
 * of the last one.  To be called if papply_leader_count_must_look.
 */
extern bool papply_leader_count_must_look;
extern void papply_leader_count_look(void);

/*
 * Count a conflict that the core apply loop has logged, or a violation of a
 * unique constraint.  Others are ignored.
 */
extern void papply_leader_count_logged(const ErrorData *error);

/*
 * Add the counts of a transaction to the statistics; it is committed.  No
 * transaction may be open: local tables that may have changed are looked up.
 */
extern void papply_leader_count_commit(void);

#endif							/* PAPPLY_LEADER_COUNT_H */
