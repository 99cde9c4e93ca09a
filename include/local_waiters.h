/*-------------------------------------------------------------------------
 * room: pool
 *
 * local_waiters.h
 *	  Local sessions do not wait for transactions whose turn is held up.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOCAL_WAITERS_H
#define PAPPLY_LOCAL_WAITERS_H

/*
 * Look whether local sessions wait for transactions whose turn has not come.  If one waits
 * for this writer, throw PAPPLY_ERRCODE_OLDER_WINS; tell other writers to roll back.
 */
extern void papply_local_waiters_look(void);

#endif							/* PAPPLY_LOCAL_WAITERS_H */
