/*-------------------------------------------------------------------------
 * room: pool
 *
 * table_class.h
 *	  How may changes of a table be applied?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_TABLE_CLASS_H
#define PAPPLY_TABLE_CLASS_H

#include "access/attmap.h"
#include "utils/relcache.h"

#include "parallel_apply.h"

typedef enum PapplyTableClass
{
	PAPPLY_TABLE_PARALLEL,		/* by a writer, beside other transactions */
	PAPPLY_TABLE_SERIAL,		/* by a writer, alone, in its turn */
	PAPPLY_TABLE_NATIVE			/* by the native loop, alone, in its turn */
} PapplyTableClass;

/* Why is it not parallel? */
typedef enum PapplyClassCause
{
	PAPPLY_CAUSE_NONE,			/* it is */
	PAPPLY_CAUSE_NO_TABLE,		/* but a foreign table, say */
	PAPPLY_CAUSE_TRIGGER,
	PAPPLY_CAUSE_DEFAULT
} PapplyClassCause;

typedef struct PapplyClassReason
{
	PapplyClassCause cause;

	/* PAPPLY_CAUSE_TRIGGER: one of them; its table may be a partition */
	Oid			trigger_relid;
	NameData	trigger;

	/* PAPPLY_CAUSE_DEFAULT: the first column, and a function in its default */
	AttrNumber	column;
	Oid			function;
} PapplyClassReason;

/*
 * How changes of rel may be applied; *reason, unless NULL is passed, becomes
 * why.  attnums, for each local column, has the number of the published column
 * or -1.  Triggers of a partitioned table are those of its partitions.  In a
 * transaction; rel is open.
 */
extern PapplyTableClass papply_table_class(Relation rel, const AttrMap *attnums,
										   PapplyClassReason *reason);

/* A cause as a phrase for messages; NULL for none. */
extern const char *papply_table_class_phrase(PapplyClassCause cause);

/*
 * A class for a table that cannot be locked: its defaults are not seen.
 * In a transaction.
 */
extern PapplyTableClass papply_table_class_unlocked(Oid relid);

/*
 * Has rel triggers that fire when a change of a single row is applied?  As
 * above.
 */
extern bool papply_table_has_triggers(Relation rel);

/*
 * May rel get a default from a domain, because a column is not published?  Then a
 * change of any type may change that, of which rel itself is not told.  As above.
 */
extern bool papply_table_has_domain_default(Relation rel, const AttrMap *attnums);

/*
 * May the constraints of a domain concern what writers do with rel: of a column, or
 * inside of a default?  Then a change of any constraint may, of which rel itself is not
 * told.  attnums as above, or NULL: all columns get their values from elsewhere.
 */
extern bool papply_table_may_check_domain(Relation rel, const AttrMap *attnums);

#endif							/* PAPPLY_TABLE_CLASS_H */
