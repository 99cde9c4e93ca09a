/*-------------------------------------------------------------------------
 * fate.h
 *	  What becomes of a message of the publisher.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_FATE_H
#define PAPPLY_FATE_H

typedef enum PapplyFate
{
	PAPPLY_UNDECIDED,			/* another file has to decide */
	PAPPLY_TAKEN,				/* in the queue or the spool, or not needed */
	PAPPLY_HELD,				/* cannot be taken yet; offer it again later */
	PAPPLY_TO_CORE_LOOP,		/* the core apply loop must get it */
	PAPPLY_OTHER_FIRST			/* the core apply loop must get another one
								 * first; then offer this one again */
} PapplyFate;

#endif							/* PAPPLY_FATE_H */
