/*-------------------------------------------------------------------------
 * local_schema.h
 *	  Which local schema is meant by the name in a RELATION message?
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_LOCAL_SCHEMA_H
#define PAPPLY_LOCAL_SCHEMA_H

#include "lib/stringinfo.h"

/*
 * Return the OID of the schema that has the name in this message; InvalidOid if there
 * is none.  Opens a transaction if none is open.
 */
extern Oid	papply_local_schema_of(const char *message, int length);

/*
 * Append a message for which the former function has returned this schema, with the
 * present name of that.  For InvalidOid, and a schema that was dropped, the message is
 * as it was sent.  Opens a transaction if none is open.
 */
extern void papply_local_schema_append(StringInfo buffer, const char *message, int length,
									   Oid schema);

#endif							/* PAPPLY_LOCAL_SCHEMA_H */
