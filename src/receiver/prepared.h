/*-------------------------------------------------------------------------
 * prepared.h
 *	  Keep the keys of prepared transactions until they are finished.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_PREPARED_H
#define PAPPLY_PREPARED_H

#include "dependency.h"
#include "row_keys.h"

/* Start with an empty state, for a new pool. */
extern void papply_prepared_reset(void);

/*
 * A transaction begins that will be prepared; it touches these keys, or any.
 */
extern void papply_prepared_begin(void);
extern void papply_prepared_add(const PapplyHashes *hashes);
extern void papply_prepared_add_all(void);

/*
 * Keep the keys of the transaction, which is complete; or forget them, because
 * they are not.
 */
extern void papply_prepared_end(TransactionId remote_xid);
extern void papply_prepared_forget(void);

/*
 * Transaction seqno commits that one or rolls it back: record seqno as the
 * last writer of its keys.
 */
extern void papply_prepared_finish(TransactionId remote_xid,
								   PapplyDependency *dependencies, uint64 seqno);

#endif							/* PAPPLY_PREPARED_H */
