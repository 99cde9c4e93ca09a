/*-------------------------------------------------------------------------
 * room: pool
 *
 * relation_registry.h
 *	  RELATION messages of the publisher, by version number, for writers.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RELATION_REGISTRY_H
#define PAPPLY_RELATION_REGISTRY_H

#include "lib/stringinfo.h"

#include "pool.h"

/* Receiver: create the registry of papply_pool.  Writer: attach to it. */
extern void papply_registry_create(void);
extern void papply_registry_attach(void);
extern void papply_registry_detach(void);

/*
 * Receiver: add a raw RELATION message; returns its version, 1 or more.  It
 * never changes and stays until dropped.  Where there is no memory for it, the process
 * ends; or, while there is nothing to lose, that is thrown, with locks.
 */
extern uint32 papply_registry_add(const char *message, uint32 length);
extern uint32 papply_registry_add_at_start(const char *message, uint32 length);

/* Receiver: no transaction that could still be applied uses that version. */
extern void papply_registry_drop(uint32 version);

/* Copy a version's message into buf, which is reset. */
extern void papply_registry_get(uint32 version, StringInfo buf);

#endif							/* PAPPLY_RELATION_REGISTRY_H */
