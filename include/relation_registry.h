/*-------------------------------------------------------------------------
 * relation_registry.h
 *	  RELATION messages of the publisher, by version number, for writers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RELATION_REGISTRY_H
#define PAPPLY_RELATION_REGISTRY_H

#include "lib/stringinfo.h"
#include "utils/dsa.h"

#include "parallel_apply.h"

/* Part of the pool. */
typedef struct PapplySharedRegistry
{
	dsa_handle	handle;			/* set before writers start */

	/* protected by registry_lock of the pool */
	dsa_pointer relations;
	uint32		length;
	uint32		capacity;
	uint32		last_version;
} PapplySharedRegistry;

/* Receiver: create the registry of papply_pool.  Writer: attach to it. */
extern void papply_registry_create(void);
extern void papply_registry_attach(void);
extern void papply_registry_detach(void);

/*
 * Receiver: add a raw RELATION message, and the OID of the local schema that it
 * means (local_schema.h), and return its version, 1 or more.  A
 * version never changes, and exists until it is dropped.  If there is no
 * memory, the first function ends the process; the second, for use while a
 * pool starts, throws the error without releasing locks.
 */
extern uint32 papply_registry_add(const char *message, uint32 length, Oid schema);
extern uint32 papply_registry_add_at_start(const char *message, uint32 length, Oid schema);

/* Receiver: drop a version that no transaction still to be applied uses. */
extern void papply_registry_drop(uint32 version);

/*
 * Copy the message of a version into buf, which is reset first, and return its
 * schema.
 */
extern Oid	papply_registry_get(uint32 version, StringInfo buf);

#endif							/* PAPPLY_RELATION_REGISTRY_H */
