/*-------------------------------------------------------------------------
 * local_schema.c
 *	  Which local schema is meant by the name in a RELATION message?
 *
 * Runs in the receiver and in writers.
 *
 * PostgreSQL's own apply looks up a table by its name once, and keeps its OID
 * until the relation cache reports that the table has changed, which it does
 * not if only the schema is renamed.  Writers look it up when they first meet
 * it, which may be long after others have.  If they found another schema by
 * its name, rows would go to two tables.
 *
 * So the receiver alone looks up the schema, when the message arrives.  Its
 * OID is passed on with the message (relation_registry.c).  Writers, and the
 * core apply loop, get the message with the present name of that schema.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/namespace.h"
#include "utils/lsyscache.h"

#include "local_schema.h"
#include "lookup.h"
#include "message.h"

/* In a RELATION message, the name of the schema follows the OID of the relation. */
#define SCHEMA_AT 5

/* The server means pg_catalog if the name is empty. */
static const char *
name_in(const char *message, int length)
{
	if (length <= SCHEMA_AT || memchr(message + SCHEMA_AT, '\0', length - SCHEMA_AT) == NULL)
		papply_message_malformed();
	return message[SCHEMA_AT] != '\0' ? message + SCHEMA_AT : "pg_catalog";
}

Oid
papply_local_schema_of(const char *message, int length)
{
	const char *name = name_in(message, length);
	PapplyLookup lookup = papply_lookup_begin();
	Oid			schema = get_namespace_oid(name, true);

	papply_lookup_end(lookup);
	return schema;
}

void
papply_local_schema_append(StringInfo buffer, const char *message, int length, Oid schema)
{
	PapplyLookup lookup = papply_lookup_begin();
	char	   *name = OidIsValid(schema) ? get_namespace_name(schema) : NULL;
	int			rest;

	if (name == NULL || strcmp(name, name_in(message, length)) == 0)
		appendBinaryStringInfo(buffer, message, length);
	else
	{
		rest = SCHEMA_AT + strlen(message + SCHEMA_AT);
		appendBinaryStringInfo(buffer, message, SCHEMA_AT);
		appendStringInfoString(buffer, name);
		appendBinaryStringInfo(buffer, message + rest, length - rest);
	}
	papply_lookup_end(lookup);
}
