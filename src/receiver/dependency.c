/*-------------------------------------------------------------------------
 * dependency.c
 *	  Which transaction wrote a key last?
 *
 * Runs in the receiver; pure: no shared memory, no lock, no I/O.
 *
 * Since commits happen in the order of sequence numbers, "wait for a set of
 * transactions" is "wait until the greatest of them is committed": one number
 * for each change.  The table maps the hash of a key to the number that wrote
 * it last.  An entry is dead as soon as its number is committed, so that
 * nothing is ever deleted, and a fixed table without chains is enough: two
 * keys that share an entry only cost a needless wait, and only while the other
 * transaction is still being applied.  An exact table would have to grow and
 * shrink with the queue for no gain.
 *
 * The dependency is one of the change, not of its transaction: what comes
 * before it runs in parallel (as in Helt et al., "C5: Cloned Concurrency
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
