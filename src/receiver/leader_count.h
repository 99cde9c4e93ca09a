/*-------------------------------------------------------------------------
 * leader_count.h
 *	  Count what the apply worker itself applies.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LEADER_COUNT_H
#define PAPPLY_LEADER_COUNT_H

#include "parallel_apply.h"

/* Begin to count. */
extern void papply_leader_count_init(void);

/*
 * The core apply loop asks for the next message: look whether it found the row
 * of the last one.  To be called if papply_leader_count_must_look.
 */
extern bool papply_leader_count_must_look;
extern void papply_leader_count_look(void);

#endif							/* PAPPLY_LEADER_COUNT_H */
