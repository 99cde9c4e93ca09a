/*-------------------------------------------------------------------------
 * room: receiver
 *
 * prepared.h
 *	  Keys of prepared transactions, until they are finished.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PREPARED_H
#define PAPPLY_PREPARED_H

#include "dependency.h"
#include "row_keys.h"

/* A pool has been created. */
extern void papply_prepared_reset(void);

/* A transaction begins that will be prepared; it touches these keys, or any. */
extern void papply_prepared_begin(void);
extern void papply_prepared_add(const PapplyHashes *hashes);
extern void papply_prepared_add_all(void);

/* It is complete: keep its keys.  Or they are not complete: forget them. */
extern void papply_prepared_end(TransactionId remote_xid);
extern void papply_prepared_forget(void);

/*
 * The transaction seqno commits it or rolls it back: record seqno as the last
 * writer of its keys.
 */
extern void papply_prepared_finish(TransactionId remote_xid,
								   PapplyDependency *dependencies, uint64 seqno);

#endif							/* PAPPLY_PREPARED_H */
