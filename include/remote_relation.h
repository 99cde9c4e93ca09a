/*-------------------------------------------------------------------------
 * room: receiver
 *
 * remote_relation.h
 *	  What the receiver knows of each relation of the publisher.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_REMOTE_RELATION_H
#define PAPPLY_REMOTE_RELATION_H

#include "lib/stringinfo.h"

#include "row_keys.h"
#include "table_class.h"

typedef struct PapplyRemoteRelation
{
	LogicalRepRelId remote_relid;	/* hash key */
	MemoryContext context;		/* of message, remote and keys */
	char	   *message;		/* the newest RELATION message, raw */
	int			length;
	LogicalRepRelation *remote; /* the same, parsed */
	uint32		version;		/* the same, in the registry; 0: no pool */
	uint32		native_version; /* the one that the native loop has; 0: none */

	/* from the local catalogs; looked up again after an invalidation */
	bool		is_current;
	Oid			local_relid;	/* InvalidOid: not found */
	List	   *partitions;		/* OIDs; of a partitioned table */
	bool		is_ready;		/* synchronised, all changes are ours */
	bool		has_domain_default; /* table_class.h */
	bool		may_check_domain;	/* the same */
	bool		lacks_place;	/* table_statistics.h */
	PapplyTableClass table_class;
	PapplyRowKeys keys;
} PapplyRemoteRelation;

/* Once, before all else. */
extern void papply_remote_relation_init(void);

/*
 * A RELATION message has arrived.  in_use: transactions up to this one may
 * still use the version that it replaces.
 */
extern void papply_remote_relation_update(const char *message, int length, uint64 in_use);

/* Version of the present definition, if that is what the message says; else 0. */
extern uint32 papply_remote_relation_version(const char *message, int length);

/*
 * The relation, with the local part current if wanted; NULL if the publisher
 * never described it.  Looking at the catalogs begins and ends a transaction
 * of its own, so none may be open.
 */
extern PapplyRemoteRelation *papply_remote_relation_get(LogicalRepRelId remote_relid,
														bool want_local);

/*
 * Return a number that is another one when the local part of any relation may have
 * changed.
 */
extern uint64 papply_remote_relation_local_changes(void);

/* A pool has been created: give it all versions.  Or it is gone. */
extern void papply_remote_relation_pool_started(void);
extern void papply_remote_relation_pool_stopped(void);

/* Drop versions that nobody uses when committed is committed. */
extern void papply_remote_relation_clean(uint64 committed);

/* The native loop may have got any version: have it told again. */
extern void papply_remote_relation_forget_native(void);

/*
 * A relation whose newest version the native loop does not have, or NULL; the
 * caller tells it.
 */
extern PapplyRemoteRelation *papply_remote_relation_next_untold(void);

#endif							/* PAPPLY_REMOTE_RELATION_H */
