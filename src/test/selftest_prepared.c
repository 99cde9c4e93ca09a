/*-------------------------------------------------------------------------
 * selftest_prepared.c
 *	  Keys of prepared transactions, by themselves, for sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"

#include "../receiver/prepared.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_prepared);

/* Prepare a transaction with this many keys: its xid, xid + 1000, xid + 2000, ... */
static void
prepare(TransactionId xid, int keys)
{
	PapplyHashes hashes = {.count = 1};

	papply_prepared_begin();
	for (int i = 0; i < keys; i++)
	{
		hashes.hashes[0] = xid + UINT64CONST(1000) * i;
		papply_prepared_add(&hashes);
	}
	papply_prepared_end(xid);
}

/* Are its keys known when it is committed?  Then nothing else depends on it. */
static bool
has_keys(TransactionId xid, uint64 seqno)
{
	PapplyDependency *table = papply_dependency_create(10);

	papply_prepared_finish(xid, table, seqno);
	EXPECT(papply_dependency_find(table, xid) == seqno);
	return papply_dependency_floor(table) != seqno;
}

/*
 * selftest_prepared(count, keys): prepare count transactions with this many keys each, and
 * return how many of them are known by their keys.  Later ones are known in any case.
 */
Datum
papply_selftest_prepared(PG_FUNCTION_ARGS)
{
	int			count = PG_GETARG_INT32(0);
	int			keys = PG_GETARG_INT32(1);
	int			known = 0;

	papply_prepared_reset();
	for (int i = 1; i <= count; i++)
		prepare(i, keys);
	for (int i = 1; i <= count; i++)
		known += has_keys(i, i) ? 1 : 0;
	prepare(count + 1, 100);
	EXPECT(has_keys(count + 1, count + 1));
	papply_prepared_reset();
	PG_RETURN_INT32(known);
}
