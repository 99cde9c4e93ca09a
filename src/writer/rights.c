/*-------------------------------------------------------------------------
 * rights.c
 *	  May the user change the tables as the transaction does?
 *
 * Runs in a writer.
 *
 * As in the native worker: the rights of the user who applies the change, on the table
 * or partition that its row is in, for what is done there.  That worker looks at them
 * for each row.  Here they are looked at once, and again when something has changed that
 * they may depend on.
 *
 * A transaction that is applied before its turn has looked too early: who has revoked a
 * right, and has got an answer, shall not find rows that came after that.  So which
 * rights it has used is kept, and looked at once more in its turn.  GRANT and REVOKE do
 * not lock the table, so nobody waits for us.
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

/* What was used of a table, in the range of transactions that used it last. */
typedef struct Used
{
	UsedKey		key;
	uint32		range_number;
	AclMode		rights;
} Used;

static HTAB *used_rights = NULL;
static uint32 range_number = 0;

/* Counts what may have changed rights, and what it was when the range was looked at. */
static uint32 changes = 1;
static uint32 range_changes = 0;

static void
invalidate_table(Datum arg, Oid relid)
{
	HASH_SEQ_STATUS status;
	Used	   *used;

	hash_seq_init(&status, used_rights);
	while ((used = hash_seq_search(&status)) != NULL)
		if (relid == InvalidOid || used->key.relid == relid)
			changes++;
}

static void
invalidate_roles(Datum arg, int cacheid, uint32 hashvalue)
{
	changes++;
}

void
papply_rights_init(void)
{
	HASHCTL		ctl;

	ctl.keysize = sizeof(UsedKey);
	ctl.entrysize = sizeof(Used);
	ctl.hcxt = TopMemoryContext;
	used_rights = hash_create("parallel_apply rights", 128, &ctl,
							  HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	CacheRegisterRelcacheCallback(invalidate_table, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, invalidate_roles, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, invalidate_roles, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, invalidate_roles, (Datum) 0);	/* its owner is a member */
}

void
papply_rights_begin_range(void)
{
	range_number++;
	range_changes = changes;
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
	Used	   *used = hash_search(used_rights, &key, HASH_ENTER, &found);

	if (!found || used->range_number != range_number)
		used->rights = 0;
	used->range_number = range_number;
	used->rights |= rights;
}

void
papply_rights_check(PapplyTarget *target, AclMode rights)
{
	uint32		counted = changes;

	if (likely((target->allowed & rights) == rights && target->allowed_at == counted))
		return;
	if (target->allowed_at != counted)
		target->allowed = 0;
	target->allowed_at = counted;
	note_use(target, rights);
	papply_rights_check_relation(target->rel, rights);
	target->allowed |= rights;
}

/* The transaction has locked the table. */
static bool
is_still_allowed(const Used *used)
{
	Relation	root = try_relation_open(used->key.root_relid, NoLock);
	PapplyUserContext user_context;
	bool		result;

	if (root == NULL)
		return true;			/* it has dropped it */
	papply_compat_begin_as_table_owner(root, &user_context);
	result = has_rights(used->key.relid, used->rights);
	papply_compat_end_as_table_owner(&user_context);
	relation_close(root, NoLock);
	return result;
}

bool
papply_rights_are_current(void)
{
	uint32		counted = changes;
	HASH_SEQ_STATUS status;
	Used	   *used;

	if (range_changes == counted)
		return true;
	hash_seq_init(&status, used_rights);
	while ((used = hash_seq_search(&status)) != NULL)
	{
		if (used->range_number != range_number || is_still_allowed(used))
			continue;
		hash_seq_term(&status);
		return false;
	}
	range_changes = counted;
	return true;
}
