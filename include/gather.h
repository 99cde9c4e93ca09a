/*-------------------------------------------------------------------------
 * room: sender
 *
 * gather.h
 *	  Messages of a publisher that are sent together.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GATHER_H
#define PAPPLY_GATHER_H

/* Postmaster: from now on walsenders follow the setting gather_messages. */
extern void papply_gather_install(void);

#endif							/* PAPPLY_GATHER_H */
