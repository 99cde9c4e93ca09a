/*-------------------------------------------------------------------------
 * remote_relation.h
 *	  Keep what the receiver knows about each relation of the publisher.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REMOTE_RELATION_H
#define PAPPLY_REMOTE_RELATION_H

#include "apply_mode.h"
#include "row_keys.h"
#include "table_statistics.h"

typedef struct PapplyRemoteRelation
{
	LogicalRepRelId remote_relid;	/* hash key */
	MemoryContext context;		/* of message, remote and keys */
	PapplyMessage message;		/* the newest RELATION */
	LogicalRepRelation *remote; /* that message, parsed */
	Oid			schema;			/* the local one that it means: local_schema.h */
	uint32		version;		/* its version in the registry; 0: no pool */
	uint32		native_version; /* version that the core apply loop has; 0:
								 * none */

	/* From the local catalogs; looked up again after an invalidation. */
	bool		is_current;
	Oid			local_relid;	/* InvalidOid: not found */
	List	   *partitions;		/* OIDs, if it is a partitioned table */
	bool		is_ready;		/* synchronized: all its changes are applied */
	XLogRecPtr	synced_lsn;		/* if not: those that end here or later are;
								 * 0: none */
	bool		has_domain_default; /* apply_mode.h */
	bool		may_check_domain;	/* also apply_mode.h */
	bool		lacks_place;	/* table_statistics.h */
	Oid			warned_relid;	/* the last one that was found intercepted */
	PapplyApplyMode apply_mode;
	bool		has_user_code;	/* triggers, or functions other than the
								 * server's own */
	PapplyRowKeys keys;

	/* What the core apply loop does with it in a transaction: leader_count.c. */
	bool		is_counted;		/* in the list */
	struct PapplyRemoteRelation *next_counted;
	uint64		counts[PAPPLY_TABLE_COUNTERS];
	uint64		changed_rows;	/* the server's count */
	PapplyConflict last_conflict;	/* if its time is set */
	PapplyTableHint hint;
} PapplyRemoteRelation;

/* Call this first. */
extern void papply_remote_relation_init(void);

/*
 * Take over a RELATION message that has arrived.  in_use: transactions up to
 * this one may still use the version that it replaces.
 */
extern void papply_remote_relation_update(const PapplyMessage *message, uint64 in_use);

/*
 * Return the version of the current definition if the message has the same
 * one, for the same local schema, else 0.
 */
extern uint32 papply_remote_relation_version(const PapplyMessage *message, Oid schema);

/*
 * Return the relation, or NULL if the publisher never described it.
 * want_local: bring the local part up to date.  That reads catalogs in a
 * transaction of its own, so none may be open.
 */
extern PapplyRemoteRelation *papply_remote_relation_get(LogicalRepRelId remote_relid,
														bool want_local);

/* Has the publisher described a relation with REPLICA IDENTITY FULL? */
extern bool papply_remote_relation_knows_full(void);

/*
 * Return a number that changes whenever the local part of any relation may
 * have changed.
 */
extern uint32 papply_remote_relation_local_changes(void);

/*
 * Give all versions to a new pool; or forget them, because the pool is gone.
 */
extern void papply_remote_relation_pool_started(void);
extern void papply_remote_relation_pool_stopped(void);

/* Drop versions that no transaction after committed uses. */
extern void papply_remote_relation_clean(uint64 committed);

/* Forget which versions the core apply loop has, so that it gets them again. */
extern void papply_remote_relation_forget_native(void);

/*
 * Return a relation whose newest version the core apply loop does not have, or
 * NULL.  The caller sends it to the core apply loop.
 */
extern PapplyRemoteRelation *papply_remote_relation_next_unannounced(void);

#endif							/* PAPPLY_REMOTE_RELATION_H */
