/*-------------------------------------------------------------------------
 * rights.c
 *	  Does the user have the rights on the tables that a transaction changes?
 *
 * Runs in a writer.
 *
 * The rule is that of the core apply loop: the user that applies the change
 * needs the right to do it on the table or partition that its row is in.  The
 * core apply loop checks that for each row.  A writer checks it once, also for
 * later transactions, and again when something has changed that it may depend
 * on.
 *
 * A transaction that is applied before its turn checks too early.  Once REVOKE
 * has returned, no row of a later transaction may be changed under the revoked
 * privilege.  So the rights that a transaction has used are kept, and checked
 * again in its turn.  GRANT and REVOKE do not lock the table, so they do not
 * wait for the writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/relation.h"
#include "miscadmin.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/syscache.h"

#include "rights.h"

typedef struct UsedKey
{
	Oid			relid;
	Oid			root_relid;		/* its owner may be the user: compat.h */
} UsedKey;

/*
 * The rights used on a table by the last range of transactions that used it.
 */
typedef struct Used
{
	UsedKey		key;
	uint32		range_number;
	AclMode		rights;
} Used;

typedef struct RightsInUse
{
	HTAB	   *used;			/* of Used */
	uint32		range_number;
	uint32		changes;		/* counts events that may have changed rights */
	uint32		checked_at;		/* value of changes when the range was last
								 * checked */
} RightsInUse;

static RightsInUse in_use = {.changes = 1};

static void
invalidate_table(Datum arg, Oid relid)
{
	in_use.changes++;
}

static void
invalidate_roles(Datum arg, int cacheid, uint32 hashvalue)
{
	in_use.changes++;
}

void
papply_rights_init(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(UsedKey);
	ctl.entrysize = sizeof(Used);
	ctl.hcxt = TopMemoryContext;
	in_use.used = hash_create("parallel_apply rights", 128, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(invalidate_table, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, invalidate_roles, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, invalidate_roles, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, invalidate_roles, (Datum) 0);	/* for pg_database_owner */
}

void
papply_rights_begin_range(void)
{
	in_use.range_number++;
	in_use.checked_at = in_use.changes;
}

static bool
has_rights(Oid relid, AclMode rights)
{
	return pg_class_aclmask(relid, GetUserId(), rights, ACLMASK_ALL) == rights &&
		check_enable_rls(relid, InvalidOid, true) != RLS_ENABLED;
}

void
papply_rights_check_relation(Relation rel, AclMode rights)
{
	if (!has_rights(RelationGetRelid(rel), rights))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for table %s", RelationGetRelationName(rel))));
}

static void
note_use(const PapplyTarget *target, AclMode rights)
{
	UsedKey		key = {RelationGetRelid(target->rel), target->root_relid};
	bool		found;
	Used	   *used = hash_search(in_use.used, &key, HASH_ENTER, &found);

	if (!found || used->range_number != in_use.range_number)
		used->rights = 0;
	used->range_number = in_use.range_number;
	used->rights |= rights;
}

void
papply_rights_check(PapplyTarget *target, AclMode rights)
{
	uint32		counted = in_use.changes;
	Oid			userid = GetUserId();

	if (target->allowed_at != counted || target->allowed_to != userid)
		target->allowed = target->noted = 0;
	if (target->noted_in != in_use.range_number)
		target->noted = 0;
	if (likely((target->allowed & target->noted & rights) == rights))
		return;
	target->allowed_at = counted;
	target->allowed_to = userid;
	target->noted_in = in_use.range_number;
	note_use(target, rights);
	target->noted |= rights;
	if ((target->allowed & rights) == rights)
		return;
	papply_rights_check_relation(target->rel, rights);
	target->allowed |= rights;
}

/*
 * Check whether rights used before are still there.  The transaction has
 * locked the table.
 */
static bool
is_still_allowed(const Used *used)
{
	Relation	root = try_relation_open(used->key.root_relid, NoLock);
	PapplyUserContext user_context;
	bool		result;

	if (root == NULL)
		return true;			/* dropped by this transaction */
	papply_compat_begin_as_table_owner(root, &user_context);
	result = has_rights(used->key.relid, used->rights);
	papply_compat_end_as_table_owner(&user_context);
	relation_close(root, NoLock);
	return result;
}

bool
papply_rights_are_current(void)
{
	uint32		counted = in_use.changes;
	HASH_SEQ_STATUS status;
	Used	   *used;

	if (in_use.checked_at == counted)
		return true;
	hash_seq_init(&status, in_use.used);
	while ((used = hash_seq_search(&status)) != NULL)
		if (used->range_number == in_use.range_number && !is_still_allowed(used))
		{
			hash_seq_term(&status);
			return false;
		}
	in_use.checked_at = counted;
	return true;
}
