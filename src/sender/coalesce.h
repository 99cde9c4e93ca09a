/*-------------------------------------------------------------------------
 * coalesce.h
 *	  Send several messages of a publisher together.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_COALESCE_H
#define PAPPLY_COALESCE_H

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
