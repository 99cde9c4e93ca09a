/*-------------------------------------------------------------------------
 * room: writer
 *
 * read_ahead.h
 *	  Ask storage for the pages of changes that are yet to be applied.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_READ_AHEAD_H
#define PAPPLY_READ_AHEAD_H

#include "parallel_apply.h"

/*
 * Transactions are claimed and will be applied: for the first time, if they may
 * be read ahead.
 */
extern void papply_read_ahead_begin(uint64 first, uint64 last, bool is_allowed);

/*
 * Before each change, in a local transaction: position is behind it.  Does not
 * wait but for pages; may throw what converting a key throws, and does not
 * come across that change again.
 */
extern void papply_read_ahead(uint64 position);

/* Is storage slow, and its latency hidden by reading ahead? */
extern bool papply_read_ahead_is_on(void);

/* All of them are applied. */
extern void papply_read_ahead_end(void);

#endif							/* PAPPLY_READ_AHEAD_H */
