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
 *
 * Version numbers are not used again, since writers keep what they know of a version.  So
 * the list of versions is in ascending order, and when it is full, those that were dropped
 * are removed: its size follows the number of relations, not that of their definitions.
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

typedef struct RegistryVersion
{
	uint32		version;
	dsa_pointer item;			/* InvalidDsaPointer: dropped */
} RegistryVersion;

#define MIN_CAPACITY 64

static dsa_area *area = NULL;

void
papply_registry_create(void)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	area = dsa_create(papply_pool->registry_lock.tranche);
	MemoryContextSwitchTo(old_context);
	dsa_pin_mapping(area);
	papply_pool->registry_handle = dsa_get_handle(area);
	papply_pool->registry_capacity = MIN_CAPACITY;
	papply_pool->registry = dsa_allocate(area, MIN_CAPACITY * sizeof(RegistryVersion));
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

/* Return the list of versions; the lock is held. */
static RegistryVersion *
get_versions(void)
{
	return dsa_get_address(area, papply_pool->registry);
}

/* Return what there is of a version, or NULL; the lock is held. */
static RegistryVersion *
find_version(uint32 version)
{
	RegistryVersion *versions = get_versions();
	uint32		low = 0;
	uint32		high = papply_pool->registry_length;

	while (low < high)
	{
		uint32		middle = low + (high - low) / 2;

		if (versions[middle].version < version)
			low = middle + 1;
		else
			high = middle;
	}
	return low < papply_pool->registry_length && versions[low].version == version &&
		DsaPointerIsValid(versions[low].item) ? &versions[low] : NULL;
}

static uint32
count_live(const RegistryVersion *versions)
{
	uint32		count = 0;

	for (uint32 i = 0; i < papply_pool->registry_length; i++)
		count += DsaPointerIsValid(versions[i].item) ? 1 : 0;
	return count;
}

/* Remove dropped versions from a list that is full, and let it be half full at most. */
static void
make_room(void)
{
	RegistryVersion *old = get_versions();
	uint32		capacity = Max(MIN_CAPACITY, 2 * count_live(old));
	dsa_pointer pointer = dsa_allocate(area, capacity * sizeof(RegistryVersion));
	RegistryVersion *new = dsa_get_address(area, pointer);
	uint32		length = 0;

	for (uint32 i = 0; i < papply_pool->registry_length; i++)
		if (DsaPointerIsValid(old[i].item))
			new[length++] = old[i];
	dsa_free(area, papply_pool->registry);
	papply_pool->registry = pointer;
	papply_pool->registry_length = length;
	papply_pool->registry_capacity = capacity;
}

uint32
papply_registry_add_at_start(const char *message, uint32 length)
{
	dsa_pointer pointer = dsa_allocate(area, offsetof(RegistryItem, message) + length);
	RegistryItem *item = dsa_get_address(area, pointer);
	RegistryVersion *last;
	uint32		version;

	item->length = length;
	memcpy(item->message, message, length);

	LWLockAcquire(&papply_pool->registry_lock, LW_EXCLUSIVE);
	if (papply_pool->registry_length == papply_pool->registry_capacity)
		make_room();
	version = ++papply_pool->registry_last_version;
	last = &get_versions()[papply_pool->registry_length++];
	last->version = version;
	last->item = pointer;
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
	RegistryVersion *found;

	LWLockAcquire(&papply_pool->registry_lock, LW_EXCLUSIVE);
	found = find_version(version);
	if (found != NULL)
	{
		dsa_free(area, found->item);
		found->item = InvalidDsaPointer;
	}
	LWLockRelease(&papply_pool->registry_lock);
}

void
papply_registry_get(uint32 version, StringInfo buf)
{
	RegistryVersion *found;
	RegistryItem *item;

	LWLockAcquire(&papply_pool->registry_lock, LW_SHARED);
	found = find_version(version);
	if (found == NULL)
		elog(ERROR, "relation version %u does not exist", version);
	item = dsa_get_address(area, found->item);
	resetStringInfo(buf);
	appendBinaryStringInfo(buf, item->message, item->length);
	LWLockRelease(&papply_pool->registry_lock);
}
