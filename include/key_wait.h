/*-------------------------------------------------------------------------
 * room: writer
 *
 * key_wait.h
 *	  Which keys has this writer waited for?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_KEY_WAIT_H
#define PAPPLY_KEY_WAIT_H

#include "queue.h"
#include "target.h"

/* A wait for a dependency has ended: it was for that key of the next change. */
extern void papply_key_wait_note(const PapplyKeyName *key, uint64 us);

/* The next change, parsed and not terminated; its target has been opened. */
extern void papply_key_wait_begin_change(PapplyTarget *target, const PapplyChange *change);

/* The local transaction has ended, either way: what was noted is added. */
extern void papply_key_wait_end_transaction(void);

#endif							/* PAPPLY_KEY_WAIT_H */
