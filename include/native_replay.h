/*-------------------------------------------------------------------------
 * room: receiver
 *
 * native_replay.h
 *	  Transactions that PostgreSQL's own apply loop does.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_NATIVE_REPLAY_H
#define PAPPLY_NATIVE_REPLAY_H

#include "message.h"

/*
 * A message for the native loop in the form that walrcv_receive() returns, in
 * memory that stays valid until the next call.
 */
extern int	papply_native_frame(const char *message, int length, char **buffer);
extern int	papply_native_keepalive(XLogRecPtr remote_lsn, bool reply_requested,
									char **buffer);

/* Time of the publisher that framed messages carry. */
extern void papply_native_set_send_time(TimestampTz send_time);
extern TimestampTz papply_native_send_time(void);

/*
 * Is the native loop in a transaction, and one that the queue knows?  seqno of
 * it, PAPPLY_NO_SEQNO if it came directly.
 */
extern bool papply_native_is_active(void);
extern uint64 papply_native_seqno(void);

/* While active: are messages of it still in the queue? */
extern bool papply_native_reads_queue(void);

/*
 * It is the turn of the native loop: for the transaction seqno of the queue,
 * or for one whose messages come directly.  origin is PAPPLY_NO_ORIGIN when
 * there is no pool.
 */
extern void papply_native_begin_queued(uint64 seqno, PapplyOriginId origin);
extern void papply_native_begin_direct(PapplyOriginId origin);

/*
 * The next message of a queued transaction.  Returns its length, or 0 when
 * what comes next has to be received.
 */
extern int	papply_native_next(char **buffer);

/*
 * The caller is about to hand on a message that was received.  Returns the
 * length of a message that has to be handed on before it, or 0; the last
 * message of the transaction is noticed.
 */
extern int	papply_native_before(char *message, int length, char **buffer);

/*
 * Call first in every receive: if the last message of a transaction was handed
 * on before, the native loop has committed it now.  Returns true then, and the end
 * of the transaction (Invalid: it had none), and of the local WAL that has to be flushed
 * before that is confirmed.
 */
extern bool papply_native_finish(XLogRecPtr *remote_end_lsn, XLogRecPtr *local_end_lsn);

/*
 * The process ends, no transaction is open: release the origin now, so that
 * the next receiver does not find it in use.
 */
extern void papply_native_abandon(void);

#endif							/* PAPPLY_NATIVE_REPLAY_H */
