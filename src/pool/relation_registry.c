/*-------------------------------------------------------------------------
 * relation_registry.c
 *	  RELATION messages of the publisher, by version number, for writers.
 *
 * The publisher describes a relation before the first change of it and after
 * each change of its definition.  Any writer may get the next change, also one
 * that started late, and several transactions with different definitions may
 * be in the queue at once.  So every distinct RELATION message gets a version
 * number and never changes; a change in the queue names the version that it
 * was made with.  Nothing has to be drained when a table is altered.
 *
 * The messages live in a DSA area, since their number and size have no bound
 * that is worth reserving.  The receiver adds and drops, writers copy; both
 * under registry_lock, which is taken once for each version and writer.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "utils/memutils.h"

#include "relation_registry.h"

typedef struct RegistryItem
{
	uint32		length;
	char		message[FLEXIBLE_ARRAY_MEMBER];
} RegistryItem;

#define INITIAL_CAPACITY 64

static dsa_area *area = NULL;

void
papply_registry_create(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	area = dsa_create(papply_pool->registry_lock.tranche);
	MemoryContextSwitchTo(old_context);
	dsa_pin_mapping(area);
	papply_pool->registry_handle = dsa_get_handle(area);
	papply_pool->registry_capacity = INITIAL_CAPACITY;
	papply_pool->registry = dsa_allocate0(area, INITIAL_CAPACITY * sizeof(dsa_pointer));
}

void
papply_registry_attach(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	area = dsa_attach(papply_pool->registry_handle);
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

/* Double the table of versions; lock is held exclusively. */
static void
grow(void)
{
	uint32		capacity = papply_pool->registry_capacity;
	dsa_pointer bigger = dsa_allocate0(area, 2 * capacity * sizeof(dsa_pointer));

	memcpy(dsa_get_address(area, bigger),
		   dsa_get_address(area, papply_pool->registry),
		   capacity * sizeof(dsa_pointer));
	dsa_free(area, papply_pool->registry);
	papply_pool->registry = bigger;
	papply_pool->registry_capacity = 2 * capacity;
}

uint32
papply_registry_add_at_start(const char *message, uint32 length)
{
	dsa_pointer pointer = dsa_allocate(area, offsetof(RegistryItem, message) + length);
	RegistryItem *item = dsa_get_address(area, pointer);
	dsa_pointer *versions;
	uint32		version;

	item->length = length;
	memcpy(item->message, message, length);

	LWLockAcquire(&papply_pool->registry_lock, LW_EXCLUSIVE);
	if (papply_pool->registry_length + 1 >= papply_pool->registry_capacity)
		grow();
	version = ++papply_pool->registry_length;
	versions = dsa_get_address(area, papply_pool->registry);
	versions[version] = pointer;
	LWLockRelease(&papply_pool->registry_lock);
	return version;
}

/*
 * There is no memory for it.  PostgreSQL's own apply does not need any, so this is no error
 * of the subscription, which might be disabled for it: the process ends, and the next one
 * has no pool for some time.
 */
static void
end_for_lack_of_memory(void)
{
	ErrorData  *error = CopyErrorData();

	LWLockReleaseAll();
	FlushErrorState();
	papply_pool_note_lack();
	error->elevel = FATAL;
	ThrowErrorData(error);
}

uint32
papply_registry_add(const char *message, uint32 length)
{
	MemoryContext old_context = CurrentMemoryContext;
	volatile uint32 version = 0;

	PG_TRY();
	{
		version = papply_registry_add_at_start(message, length);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		end_for_lack_of_memory();
	}
	PG_END_TRY();
	return version;
}

void
papply_registry_drop(uint32 version)
{
	dsa_pointer *versions;

	LWLockAcquire(&papply_pool->registry_lock, LW_EXCLUSIVE);
	versions = dsa_get_address(area, papply_pool->registry);
	dsa_free(area, versions[version]);
	versions[version] = InvalidDsaPointer;
	LWLockRelease(&papply_pool->registry_lock);
}

void
papply_registry_get(uint32 version, StringInfo buf)
{
	dsa_pointer *versions;

	LWLockAcquire(&papply_pool->registry_lock, LW_SHARED);
	versions = dsa_get_address(area, papply_pool->registry);
	if (version == 0 || version > papply_pool->registry_length ||
		!DsaPointerIsValid(versions[version]))
		elog(ERROR, "relation version %u does not exist", version);
	else
	{
		RegistryItem *item = dsa_get_address(area, versions[version]);

		resetStringInfo(buf);
		appendBinaryStringInfo(buf, item->message, item->length);
	}
	LWLockRelease(&papply_pool->registry_lock);
}
