/*-------------------------------------------------------------------------
 * dependency.c
 *	  Find the transaction that wrote a key last.
 *
 * Runs in the receiver; pure: no shared memory, no lock, no I/O.
 *
 * Commits happen in the order of sequence numbers, so waiting for a set of
 * transactions means waiting until the greatest of them is committed.  One
 * number per change is enough.  The table maps the hash of a key to the number
 * of the transaction that wrote the key last.  An entry is dead as soon as its
 * number is committed.  So nothing is ever deleted, and a fixed table without
 * chains is enough: two keys that share an entry only cost a needless wait,
 * and only while the other transaction is still being applied.  An exact table
 * would have to grow and shrink with the queue for no gain.
 *
 * The dependency belongs to the change, not to its transaction, so changes
 * before it run in parallel (as in Helt et al., "C5: Cloned Concurrency
 * Control That Always Keeps Up", VLDB 2022).
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "dependency.h"

struct PapplyDependency
{
	uint64		mask;
	uint64		floor;			/* everything depends on this */
	uint64		writers[FLEXIBLE_ARRAY_MEMBER];
};

PapplyDependency *
papply_dependency_create(int bits)
{
	uint64		size = UINT64CONST(1) << bits;
	PapplyDependency *table;

	table = palloc0(offsetof(PapplyDependency, writers) + size * sizeof(uint64));
	table->mask = size - 1;
	return table;
}

uint64
papply_dependency_find(const PapplyDependency *table, uint64 hash)
{
	return Max(table->floor, table->writers[hash & table->mask]);
}

void
papply_dependency_record(PapplyDependency *table, uint64 hash, uint64 seqno)
{
	Assert(seqno >= table->writers[hash & table->mask]);
	table->writers[hash & table->mask] = seqno;
}

uint64
papply_dependency_floor(const PapplyDependency *table)
{
	return table->floor;
}

void
papply_dependency_record_all(PapplyDependency *table, uint64 seqno)
{
	Assert(seqno >= table->floor);
	table->floor = seqno;
}
