/*-------------------------------------------------------------------------
 * storage_wait.h
 *	  Does this writer wait for storage?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STORAGE_WAIT_H
#define PAPPLY_STORAGE_WAIT_H

#include "awake.h"

/* Call before and after the changes of a range. */
extern void papply_storage_wait_begin(void);
extern PapplyStorage papply_storage_wait_end(void);

#endif							/* PAPPLY_STORAGE_WAIT_H */
