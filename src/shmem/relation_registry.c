/*-------------------------------------------------------------------------
 * relation_registry.c
 *	  RELATION messages of the publisher, by version number, for writers.
 *
 * The publisher describes a relation before its first change and after each
 * change of its definition.  Any writer may get the next change, including one
 * that was started later, and transactions with different definitions can be
 * in the queue at the same time.  So every distinct RELATION message gets a
 * version number and never changes.  A change in the queue names the version
 * that it was made with.  So altering a table does not require draining the
 * queue.
 *
 * The messages are in a DSA area, because their number and size have no useful
 * bound.  The receiver adds and drops them, and writers copy them.  Both are
 * done under registry_lock, which a writer takes once for each version.
 *
 * Version numbers are not reused, because writers cache the versions that they
 * have read.  So the list of versions is in ascending order.  Its size depends
 * on the number of relations and not on that of their definitions, because
 * dropped versions leave it.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/memutils.h"

#include "pool.h"
#include "relation_registry.h"

typedef struct RegistryItem
{
	uint32		length;
	Oid			schema;
	char		message[FLEXIBLE_ARRAY_MEMBER];
} RegistryItem;

typedef struct RegistryVersion
{
	uint32		version;
	dsa_pointer item;
} RegistryVersion;

#define FIRST_CAPACITY 64

static dsa_area *area = NULL;

void
papply_registry_create(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	area = dsa_create(papply_pool->registry_lock.tranche);
	MemoryContextSwitchTo(old_context);
	dsa_pin_mapping(area);
	papply_pool->registry.handle = dsa_get_handle(area);
	papply_pool->registry.capacity = FIRST_CAPACITY;
	papply_pool->registry.relations = dsa_allocate(area, FIRST_CAPACITY * sizeof(RegistryVersion));
}

void
papply_registry_attach(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	area = dsa_attach(papply_pool->registry.handle);
	MemoryContextSwitchTo(old_context);
	dsa_pin_mapping(area);
}

void
papply_registry_detach(void)
{
	if (area != NULL)
		dsa_detach(area);
	area = NULL;
}

/* Return the list of versions.  The caller holds the lock. */
static RegistryVersion *
get_versions(void)
{
	Assert(LWLockHeldByMe(&papply_pool->registry_lock));
	return dsa_get_address(area, papply_pool->registry.relations);
}

static int
compare_versions(const void *left, const void *right)
{
	uint32		a = ((const RegistryVersion *) left)->version;
	uint32		b = ((const RegistryVersion *) right)->version;

	return a < b ? -1 : a > b;
}

/* Return a version, or NULL if there is none.  The caller holds the lock. */
static RegistryVersion *
find_version(uint32 version)
{
	RegistryVersion key = {.version = version};

	return bsearch(&key, get_versions(), papply_pool->registry.length, sizeof(RegistryVersion),
				   compare_versions);
}

/* Double the size of the list. */
static void
grow_list(void)
{
	Size		size = papply_pool->registry.capacity * sizeof(RegistryVersion);
	dsa_pointer larger = dsa_allocate(area, 2 * size);

	memcpy(dsa_get_address(area, larger), get_versions(), size);
	dsa_free(area, papply_pool->registry.relations);
	papply_pool->registry.relations = larger;
	papply_pool->registry.capacity *= 2;
}

uint32
papply_registry_add_at_start(const char *message, uint32 length, Oid schema)
{
	dsa_pointer pointer = dsa_allocate(area, offsetof(RegistryItem, message) + length);
	RegistryItem *item = dsa_get_address(area, pointer);
	RegistryVersion *last;
	uint32		version;

	item->length = length;
	item->schema = schema;
	memcpy(item->message, message, length);

	LWLockAcquire(&papply_pool->registry_lock, LW_EXCLUSIVE);
	if (papply_pool->registry.length == papply_pool->registry.capacity)
		grow_list();
	version = ++papply_pool->registry.last_version;
	last = &get_versions()[papply_pool->registry.length++];
	last->version = version;
	last->item = pointer;
	Assert(last == get_versions() || last[-1].version < version);
	LWLockRelease(&papply_pool->registry_lock);
	return version;
}

/*
 * Rethrow an error due to lack of memory as FATAL.  PostgreSQL's own apply
 * does not need this memory, so the error must not disable the subscription.
 * The process ends, and the next one has no pool for some time.
 */
uint32
papply_registry_add(const char *message, uint32 length, Oid schema)
{
	MemoryContext old_context = CurrentMemoryContext;
	volatile uint32 version = 0;

	PG_TRY();
	{
		version = papply_registry_add_at_start(message, length, schema);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(old_context);
		error = CopyErrorData();
		LWLockReleaseAll();
		FlushErrorState();
		papply_pool_note_lack();
		error->elevel = FATAL;
		ThrowErrorData(error);
	}
	PG_END_TRY();
	return version;
}

void
papply_registry_drop(uint32 version)
{
	RegistryVersion *found;

	LWLockAcquire(&papply_pool->registry_lock, LW_EXCLUSIVE);
	found = find_version(version);
	if (found != NULL)
	{
		Assert(papply_pool->registry.length > 0);
		dsa_free(area, found->item);
		papply_pool->registry.length--;
		memmove(found, found + 1,
				(char *) &get_versions()[papply_pool->registry.length] - (char *) found);
	}
	LWLockRelease(&papply_pool->registry_lock);
}

Oid
papply_registry_get(uint32 version, StringInfo buf)
{
	RegistryVersion *found;
	RegistryItem *item;
	Oid			schema;

	LWLockAcquire(&papply_pool->registry_lock, LW_SHARED);
	found = find_version(version);
	if (found == NULL)
		elog(ERROR, "relation version %u does not exist", version);
	item = dsa_get_address(area, found->item);
	resetStringInfo(buf);
	appendBinaryStringInfo(buf, item->message, item->length);
	schema = item->schema;
	LWLockRelease(&papply_pool->registry_lock);
	return schema;
}
