/*-------------------------------------------------------------------------
 * selftest_registry.c
 *	  Test the registry of versions, for sql/selftest.sql.
 *
 * Runs in a user's backend, and only in libraries made with SELFTEST=1.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "fmgr.h"

#include "pool.h"
#include "relation_registry.h"
#include "test_hooks.h"

PG_FUNCTION_INFO_V1(papply_selftest_registry);

/* As many relations as this stay as they are. */
#define RELATIONS 100

static uint32
add(int number)
{
	char	   *message = psprintf("relation %d", number);

	return papply_registry_add(message, strlen(message), number + 1);
}

static void
expect_version(uint32 version, int number)
{
	StringInfoData buf;

	initStringInfo(&buf);
	EXPECT(papply_registry_get(version, &buf) == number + 1);
	EXPECT(strcmp(buf.data, psprintf("relation %d", number)) == 0);
}

/* One relation is defined again and again; *changes says how often. */
static void
drive_registry(void *changes)
{
	uint32		versions[RELATIONS];
	uint32		changing;

	papply_registry_create();
	for (int i = 0; i < RELATIONS; i++)
		versions[i] = add(i);
	changing = add(-1);
	for (int i = 0; i < *(int *) changes; i++)
	{
		uint32		newer = add(i);

		EXPECT(newer > changing);
		papply_registry_drop(changing);
		changing = newer;
		expect_version(changing, i);
	}
	for (int i = 0; i < RELATIONS; i++)
		expect_version(versions[i], i);
	*(int *) changes = papply_pool->registry.capacity;
	papply_registry_detach();
}

/* selftest_registry(changes): how many places its list has in the end. */
Datum
papply_selftest_registry(PG_FUNCTION_ARGS)
{
	int			changes = PG_GETARG_INT32(0);

	papply_selftest_with_queue(64, drive_registry, &changes);
	PG_RETURN_INT32(changes);
}
