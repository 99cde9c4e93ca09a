/*-------------------------------------------------------------------------
 * room: sender
 *
 * gather.h
 *	  Messages of a publisher that are sent together.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_GATHER_H
#define PAPPLY_GATHER_H

/* Postmaster, once, before all else. */
extern void papply_gather_init(void);

/*
 * The setting coalesce_messages has got that value, in this process and those that it forks:
 * put our functions in place of the server's, or the server's back, unless they are covered
 * by those of another library.
 */
extern void papply_gather_switch(bool is_on);

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
