/*-------------------------------------------------------------------------
 * room: receiver
 *
 * leader_count.h
 *	  What the apply worker itself has changed in each table, beside a pool.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LEADER_COUNT_H
#define PAPPLY_LEADER_COUNT_H

#include "parallel_apply.h"

/* The native loop is about to get that message. */
extern void papply_leader_count_message(const char *message, int length);

/* The transaction is committed: add what it has changed to the statistics. */
extern void papply_leader_count_commit(Oid subid);

#endif							/* PAPPLY_LEADER_COUNT_H */
