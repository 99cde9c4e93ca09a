/*-------------------------------------------------------------------------
 * room: receiver
 *
 * due_flush.h
 *	  When commits are flushed.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_DUE_FLUSH_H
#define PAPPLY_DUE_FLUSH_H

typedef enum PapplyFlushes
{
	PAPPLY_FLUSHES_AT_ONCE,		/* somebody may wait for each */
	PAPPLY_FLUSHES_ASKED,		/* the publisher asks for those that somebody
								 * waits for */
	PAPPLY_FLUSHES_GUESSED		/* probably nobody does; see guess.c */
} PapplyFlushes;

/* Known when the stream starts. */
extern void papply_due_flush_set(PapplyFlushes flushes);

/*
 * Somebody waits for what has been received up to now: it is flushed as soon as it is
 * committed.  Returns true if the publisher may have asked for that, and not before.
 */
extern bool papply_due_flush_ask(void);

/* Is something committed that will be flushed soon? */
extern bool papply_due_flush_is_expected(void);

/* Flush what is committed, if possible by a writer. */
extern void papply_due_flush_all(void);

/* The same if it is time and nobody else does; call it when there is nothing to read. */
extern void papply_due_flush_look(void);

/* After so many milliseconds it may be time; -1: nothing is to be flushed, or somebody does it. */
extern long papply_due_flush_patience_ms(void);

#endif							/* PAPPLY_DUE_FLUSH_H */
