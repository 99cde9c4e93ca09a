/*-------------------------------------------------------------------------
 * resync.h
 *	  Have tables that differ copied again.
 *-------------------------------------------------------------------------
 */
#ifndef VERIFY_RESYNC_H
#define VERIFY_RESYNC_H

#include "tables.h"

/*
 * Have each table that differs copied again, and wait until all of them are.  Return false
 * if that is not possible for one of them.
 */
extern bool resync_tables(const Tables *tables, PGconn *subscriber, const Subscription *subscription);

#endif							/* VERIFY_RESYNC_H */
