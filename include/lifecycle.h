/*-------------------------------------------------------------------------
 * room: receiver
 *
 * lifecycle.h
 *	  When a subscription has a pool, and how it comes and goes.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LIFECYCLE_H
#define PAPPLY_LIFECYCLE_H

#include "access/xlogdefs.h"

#include "parallel_apply.h"

/* Once, before all else. */
extern void papply_lifecycle_init(void);

/* Shall there be a pool?  No transaction is open. */
extern bool papply_lifecycle_wants_pool(void);

/*
 * Has PostgreSQL's own apply been chosen, by the configuration or since the extension is
 * missing, and is nothing to be held back or measured?  Costs no look at the catalogs:
 * false, if one is due.
 */
extern bool papply_lifecycle_has_chosen_native(void);

/*
 * The native loop is about to go round, and to read the subscription if it has
 * been changed.  Has it been since, so that the loop must go round to know?  No
 * transaction is open.
 */
extern void papply_lifecycle_goes_round(void);
extern bool papply_lifecycle_must_go_round(void);

/* Shall no transaction be begun?  As of the last look at the catalogs. */
extern bool papply_lifecycle_is_paused(void);

/* Is there one?  And the subscription's replication origin, then. */
extern bool papply_lifecycle_has_pool(void);
extern PapplyOriginId papply_lifecycle_origin(void);

/*
 * Between transactions of any kind: start, change or stop the pool as wanted.
 * May read catalogs.
 */
extern void papply_lifecycle_adjust(void);

/* Is the pool about to stop, with nothing left in it? */
extern bool papply_lifecycle_is_drained(void);

/* Is all that was received committed?  There is a pool. */
extern bool papply_lifecycle_is_idle(void);

/*
 * Give back what is committed, and look whether all writers are well; does not
 * return if one has ended.  There is a pool.
 */
extern void papply_lifecycle_watch(void);

/* papply_writers_adapt() (writer_control.h), as long as the pool is to stay. */
extern long papply_lifecycle_adapt(bool is_behind);

/*
 * At a BEGIN: does PostgreSQL's own apply have to do the transaction?  May read
 * catalogs.
 */
extern bool papply_lifecycle_must_be_direct(XLogRecPtr final_lsn);

/* The native loop has committed a transaction that ends there. */
extern void papply_lifecycle_replayed(XLogRecPtr remote_end_lsn);

/*
 * The transaction has to be fetched again, for the native loop.  Ends the
 * process.
 */
PAPPLY_NORETURN extern void papply_lifecycle_refetch(XLogRecPtr final_lsn);

/* End the process; the launcher starts another one.  reason follows "because". */
PAPPLY_NORETURN extern void papply_lifecycle_restart(const char *reason);

#endif							/* PAPPLY_LIFECYCLE_H */
