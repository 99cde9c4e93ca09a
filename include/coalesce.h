/*-------------------------------------------------------------------------
 * coalesce.h
 *	  Send several messages of a publisher together.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COALESCE_H
#define PAPPLY_COALESCE_H

/* Postmaster, once, before all else. */
extern void papply_coalesce_init(void);

/*
 * Apply the value of the setting coalesce_messages in this process and those that it forks:
 * replace the server's functions with ours, or restore them, unless another library has
 * replaced them since.  A walsender that has begun keeps ours.
 */
extern void papply_coalesce_switch(bool is_on);

/* Is the setting on, and has no other library replaced the functions? */
extern bool papply_coalesce_is_on(void);

/* Is this the walsender of a slot whose messages are coalesced? */
extern bool papply_coalesce_concerns_us(void);

/*
 * Walsender, between records, when the WAL up to decoded_lsn has been decoded: must
 * messages be sent before the next record is decoded?
 */
extern bool papply_coalesce_must_send(XLogRecPtr decoded_lsn);

/* Walsender: count of flushes that were not omitted; only useful for comparison. */
extern uint64 papply_coalesce_flushes(void);

#endif							/* PAPPLY_COALESCE_H */
