/*-------------------------------------------------------------------------
 * room: pool
 *
 * wal_flush.h
 *	  Local commits reach the disk, by a writer that can be spared.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_WAL_FLUSH_H
#define PAPPLY_WAL_FLUSH_H

#include "pool.h"

/*
 * A local commit ends there (subscriber's WAL); invalid if nothing was written.
 * By the process in its turn, before the commit is told to others.
 */
extern void papply_wal_flush_want(XLogRecPtr local_end_lsn);

/*
 * Writer, between two transactions: flush what is committed, as long as nobody
 * else does and others are there for what is to be applied.  The receiver's
 * latch is set after each flush.
 */
extern void papply_wal_flush_if_spare(void);

/* Is anything that was committed not flushed yet, and to be flushed now? */
extern bool papply_wal_flush_is_wanted(void);

/* Receiver: shall writers not flush?  When they may again, nobody is woken for it. */
extern void papply_wal_flush_hold(bool holds);

/*
 * Receiver: is a writer flushing, or has one been woken for it?  False: nobody
 * will do it soon.
 */
extern bool papply_wal_flush_is_active(void);
extern bool papply_wal_flush_wake_writer(void);

#endif							/* PAPPLY_WAL_FLUSH_H */
