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

/* Walsender: has something stayed for long? */
extern bool papply_gather_is_late(void);

/* Walsender: how often it has sent what was gathered; to be compared only. */
extern uint64 papply_gather_flushes(void);

#endif							/* PAPPLY_GATHER_H */
