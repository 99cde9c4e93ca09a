/*-------------------------------------------------------------------------
 * key_wait.h
 *	  Which keys has this writer waited for?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_KEY_WAIT_H
#define PAPPLY_KEY_WAIT_H

#include "queue.h"
#include "target.h"

/*
 * Note a wait for a dependency, which has ended.  key is that of the next
 * change.
 */
extern void papply_key_wait_note(const PapplyKeyName *key, uint64 us);

/*
 * Add the values of the key to the wait just noted, from the next change.  The
 * change has been parsed, but its columns are not terminated; its target has
 * been opened.
 */
extern void papply_key_wait_begin_change(PapplyTarget *target, const PapplyChange *change);

/*
 * Add the noted waits to the statistics at the end of the local transaction,
 * whether it was committed or not.
 */
extern void papply_key_wait_end_transaction(void);

#endif							/* PAPPLY_KEY_WAIT_H */
