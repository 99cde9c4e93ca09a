/*-------------------------------------------------------------------------
 * room: sender
 *
 * gather.h
 *	  Messages of a publisher that are sent together.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GATHER_H
#define PAPPLY_GATHER_H

/* Postmaster: from now on walsenders follow the setting coalesce_messages. */
extern void papply_gather_install(void);

/* Is this the walsender of a slot whose messages are gathered? */
extern bool papply_gather_concerns_us(void);

/*
 * Walsender, between records, when the WAL up to decoded_lsn is decoded: is something to
 * be sent before the next one?
 */
extern bool papply_gather_must_send(XLogRecPtr decoded_lsn);

/* Walsender: how often it has sent what was gathered; to be compared only. */
extern uint64 papply_gather_flushes(void);

#endif							/* PAPPLY_GATHER_H */
