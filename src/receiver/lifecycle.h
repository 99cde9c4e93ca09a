/*-------------------------------------------------------------------------
 * lifecycle.h
 *	  Decide when a subscription has a pool; start and stop it.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LIFECYCLE_H
#define PAPPLY_LIFECYCLE_H

#include "access/xlogdefs.h"

#include "parallel_apply.h"

/* Call this first. */
extern void papply_lifecycle_init(void);

/* Is a pool wanted?  No transaction is open. */
extern bool papply_lifecycle_wants_pool(void);

/*
 * Has PostgreSQL's own apply been chosen, by the configuration or because the
 * extension is missing, and does nothing have to be held back or measured?
 * Does not read the catalogs; returns false if they must be read.
 */
extern bool papply_lifecycle_has_chosen_native(void);

/*
 * begin_housekeeping: the core apply loop is about to do its housekeeping, in
 * which it reads the subscription if that has been changed.
 * needs_housekeeping: has the subscription been changed since, so that the
 * core apply loop must do so?  No transaction is open.
 */
extern void papply_lifecycle_begin_housekeeping(void);
extern bool papply_lifecycle_needs_housekeeping(void);

/* Must no transaction begin?  As of the last look at the catalogs. */
extern bool papply_lifecycle_is_paused(void);

/*
 * Is there a pool?  And what is the subscription's replication origin then?
 * PAPPLY_NO_ORIGIN without a pool.
 */
extern bool papply_lifecycle_has_pool(void);
extern PapplyOriginId papply_lifecycle_origin(void);

/*
 * Start, change or stop the pool as configured.  Called between transactions
 * of any kind; may read catalogs.
 */
extern void papply_lifecycle_adjust(void);

/* Is the pool about to stop, with nothing left in it? */
extern bool papply_lifecycle_is_drained(void);

/* Is everything that was received committed?  There is a pool. */
extern bool papply_lifecycle_is_idle(void);

/*
 * Are all tables synchronized?  Otherwise workers that synchronize some set the
 * latch for the core apply loop.  It would not notice that during its housekeeping
 * if it did not sleep afterwards, so it must.  Called between remote
 * transactions; may read the catalog in a transaction of its own.
 */
extern bool papply_lifecycle_tables_are_ready(void);

/*
 * Release what is committed: note it for the reports, and free what was kept for
 * it.  Does not return if a writer has ended unexpectedly.  There is a pool.
 */
extern void papply_lifecycle_release(void);

/*
 * Check, at intervals, that all writers are running, that the origin was not
 * moved, and that no slot waits for what is applied in progress.  This may
 * take some time, so it is not called when a message may have just arrived.
 * There is a pool.
 */
extern void papply_lifecycle_watch(void);

/* Do papply_writers_adapt() (writer_control.h), unless the pool is closing. */
extern long papply_lifecycle_adapt(bool is_behind);

/*
 * Must PostgreSQL's own apply do the transaction that begins, which has this
 * final LSN?  May read catalogs, so no local transaction may be open.
 */
extern bool papply_lifecycle_must_be_direct(XLogRecPtr final_lsn);

/* Note that the core apply loop has committed a transaction with this end. */
extern void papply_lifecycle_applied_by_leader(XLogRecPtr remote_end_lsn);

/* End the process, to fetch the transaction again for the core apply loop. */
PAPPLY_NORETURN extern void papply_lifecycle_refetch(XLogRecPtr final_lsn);

#endif							/* PAPPLY_LIFECYCLE_H */
