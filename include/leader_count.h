/*-------------------------------------------------------------------------
 * room: receiver
 *
 * leader_count.h
 *	  Count changes of each table that the apply worker itself applies for a
 *	  pool.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LEADER_COUNT_H
#define PAPPLY_LEADER_COUNT_H

#include "parallel_apply.h"

/* Count a message that the native loop is about to get. */
extern void papply_leader_count_message(const char *message, int length);

/* Add the counts of a transaction to the statistics; it is committed. */
extern void papply_leader_count_commit(Oid subid);

#endif							/* PAPPLY_LEADER_COUNT_H */
