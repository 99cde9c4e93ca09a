/*-------------------------------------------------------------------------
 * room: receiver
 *
 * lone.h
 *	  Transactions that the receiver applies itself.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LONE_H
#define PAPPLY_LONE_H

#include "datatype/timestamp.h"

/*
 * Until now there was nothing to read, as far as is known.  Returns the present
 * time of clock.h.
 */
extern int64 papply_lone_idle(void);

/*
 * Nothing else is in flight, and a transaction begins that the publisher
 * committed at that time: may the receiver apply it, if it turns out to be
 * small?
 */
extern bool papply_lone_may_begin(TimestampTz commit_time);

/* It is small: shall the receiver apply it? */
extern bool papply_lone_keeps_up(void);

/* The native loop is given one, and is back. */
extern void papply_lone_begin(void);
extern void papply_lone_end(void);

#endif							/* PAPPLY_LONE_H */
