/*-------------------------------------------------------------------------
 * leader_count.h
 *	  Count changes and conflicts of each table that the apply worker itself
 *	  applies.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LEADER_COUNT_H
#define PAPPLY_LEADER_COUNT_H

#include "parallel_apply.h"

/* Count a message that the native loop is about to get. */
extern void papply_leader_count_message(const char *message, int length);

/*
 * The native loop asks for the next message: look whether it found the row of
 * the last one.  To be called if papply_leader_count_must_look.
 */
extern bool papply_leader_count_must_look;
extern void papply_leader_count_look(void);

/*
 * Count a conflict that the native loop has logged, or a violation of a unique
 * constraint.  Others are ignored.
 */
extern void papply_leader_count_logged(const ErrorData *error);

/*
 * Add the counts of a transaction to the statistics; it is committed.  Without
 * a pool, no transaction may be open: the local tables are looked up.
 */
extern void papply_leader_count_commit(bool has_pool);

#endif							/* PAPPLY_LEADER_COUNT_H */
