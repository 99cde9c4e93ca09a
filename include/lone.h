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
 * Nothing else is in flight, and a transaction begins that the publisher
 * committed at that time: shall the receiver apply it, if it turns out to be
 * small and nothing follows it?
 */
extern bool papply_lone_is_wanted(TimestampTz commit_time);

/* The native loop has been given one, and is back. */
extern void papply_lone_begin(void);
extern void papply_lone_end(void);

#endif							/* PAPPLY_LONE_H */
