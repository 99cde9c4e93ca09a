/*-------------------------------------------------------------------------
 * room: receiver
 *
 * stream_chunk.h
 *	  Chunks of transactions that are streamed while they are in progress.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_STREAM_CHUNK_H
#define PAPPLY_STREAM_CHUNK_H

#include "parallel_apply.h"

/*
 * Does the message belong to the spooling of a streamed transaction?  Then the
 * native loop may have it at once, whatever else is in flight.
 */
extern bool papply_chunk_take(const char *message, int length);

/* Is the native loop between STREAM START and STREAM STOP? */
extern bool papply_chunk_is_open(void);

/*
 * A message is handed to the native loop; if it commits or prepares a streamed
 * transaction, the relations described in it are known from here on.
 */
extern void papply_chunk_end(const char *message);

#endif							/* PAPPLY_STREAM_CHUNK_H */
