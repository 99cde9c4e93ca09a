/*-------------------------------------------------------------------------
 * wait_checks.h
 *	  What a process checks while it waits in the commit order.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WAIT_CHECKS_H
#define PAPPLY_WAIT_CHECKS_H

/* To be called once by each process of a pool, before its first wait. */
extern void papply_wait_checks_begin(void);

#endif							/* PAPPLY_WAIT_CHECKS_H */
