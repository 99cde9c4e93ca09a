/*-------------------------------------------------------------------------
 * apply_mode.h
 *	  Find out how changes of a table may be applied.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_APPLY_MODE_H
#define PAPPLY_APPLY_MODE_H

#include "access/attmap.h"
#include "catalog/pg_trigger.h"
#include "utils/relcache.h"

#include "parallel_apply.h"

typedef enum PapplyApplyMode
{
	PAPPLY_TABLE_PARALLEL,		/* by a writer, alongside other transactions */
	PAPPLY_TABLE_EXCLUSIVE,		/* by a writer, exclusively, in its turn */
	PAPPLY_TABLE_NATIVE			/* by the core apply loop, exclusively, in its
								 * turn */
} PapplyApplyMode;

/* Reason why a table is not parallel. */
typedef enum PapplyApplyModeCause
{
	PAPPLY_CAUSE_NONE,			/* the table is parallel */
	PAPPLY_CAUSE_NO_TABLE,		/* for example a foreign table */
	PAPPLY_CAUSE_TRIGGER,
	PAPPLY_CAUSE_DEFAULT
} PapplyApplyModeCause;

typedef struct PapplyApplyModeReason
{
	PapplyApplyModeCause cause;

	/* PAPPLY_CAUSE_TRIGGER: one such trigger; its table may be a partition */
	Oid			trigger_relid;
	NameData	trigger;

	/*
	 * PAPPLY_CAUSE_DEFAULT: the first such column, and a function in its
	 * default
	 */
	AttrNumber	column;
	Oid			function;
} PapplyApplyModeReason;

/*
 * Return how changes of rel may be applied, and why in *reason.  attnums has
 * the number of the published column, or -1, for each local column.  The
 * triggers of a partitioned table are those of its partitions.  The caller is
 * in a transaction, and rel is open.
 */
extern PapplyApplyMode papply_apply_mode(Relation rel, const AttrMap *attnums,
										 PapplyApplyModeReason *reason);

/* Return a cause as a phrase for messages; NULL for PAPPLY_CAUSE_NONE. */
extern const char *papply_apply_mode_phrase(PapplyApplyModeCause cause);

/*
 * Return the apply mode of a table that cannot be locked, without examining
 * its defaults.  The caller is in a transaction.
 */
extern PapplyApplyMode papply_apply_mode_unlocked(Oid relid);

/*
 * Does rel have triggers that fire when the change of a single row is applied?
 * The caller is in a transaction, and rel is open.
 */
extern bool papply_table_has_triggers(Relation rel);

/*
 * Can rel get a default from a domain, because a column is not published?
 * Then a change of any type may change the default, without an invalidation of
 * rel.  The caller is in a transaction, and rel is open.
 */
extern bool papply_table_has_domain_default(Relation rel, const AttrMap *attnums);

/*
 * Can the constraints of a domain affect what writers do with rel, in a column
 * or inside of a default?  Then a change of any constraint may affect this,
 * without an invalidation of rel.  attnums is as above.
 */
extern bool papply_table_may_check_domain(Relation rel, const AttrMap *attnums);

/*
 * Does an extension such as Citus or TimescaleDB intercept changes of the table
 * (intercepted.c)?  Return the kind of such a table, as a phrase for messages,
 * or NULL if it is an ordinary table.  The caller is in a transaction.
 */
extern const char *papply_intercepted_as(Oid relid);

#endif							/* PAPPLY_APPLY_MODE_H */
