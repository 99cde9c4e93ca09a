/*-------------------------------------------------------------------------
 * conflict_type.c
 *	  Names of conflicts, and their log message before PostgreSQL 18.
 *
 * Runs in the receiver, in writers, and in backends that read the views.
 *
 * From 18 on, the server logs and counts conflicts of a subscription.  Before
 * that, it applies changes of other origins' rows and skips changes of missing
 * rows silently.  The views show them on all versions;
 * parallel_apply.log_conflicts adds the messages of 18, without the values of
 * rows.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "lib/stringinfo.h"
#include "replication/logicalproto.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "table_statistics.h"

static const char *const names[] = {
	[PAPPLY_INSERT_EXISTS] = "insert_exists",
	[PAPPLY_UPDATE_ORIGIN_DIFFERS] = "update_origin_differs",
	[PAPPLY_UPDATE_EXISTS] = "update_exists",
	[PAPPLY_UPDATE_MISSING] = "update_missing",
	[PAPPLY_DELETE_ORIGIN_DIFFERS] = "delete_origin_differs",
	[PAPPLY_DELETE_MISSING] = "delete_missing",
	[PAPPLY_MULTIPLE_UNIQUE_CONFLICTS] = "multiple_unique_conflicts"
};

PapplyConflictType
papply_conflict_type_of(char message_type, bool is_found)
{
	if (message_type == LOGICAL_REP_MSG_UPDATE)
		return is_found ? PAPPLY_UPDATE_ORIGIN_DIFFERS : PAPPLY_UPDATE_MISSING;
	return is_found ? PAPPLY_DELETE_ORIGIN_DIFFERS : PAPPLY_DELETE_MISSING;
}

const char *
papply_conflict_type_name(PapplyConflictType type)
{
	return names[type];
}

/* Append which origin has written the row. */
static void
append_writer(StringInfo text, const PapplyRowWriter *writer)
{
	char	   *origin;

	if (writer->origin == PAPPLY_NO_ORIGIN)
		appendStringInfoString(text, "locally");
	else if (replorigin_by_oid(writer->origin, true, &origin))
		appendStringInfo(text, "by a different origin \"%s\"", origin);
	else
		appendStringInfoString(text, "by a non-existent origin");
	appendStringInfo(text, " in transaction %u at %s.", writer->xmin,
					 timestamptz_to_str(writer->ts));
}

static void
append_detail(StringInfo text, PapplyConflictType type, const PapplyRowWriter *writer)
{
	switch (type)
	{
		case PAPPLY_UPDATE_MISSING:
			appendStringInfoString(text, "Could not find the row to be updated.");
			break;
		case PAPPLY_DELETE_MISSING:
			appendStringInfoString(text, "Could not find the row to be deleted.");
			break;
		default:
			appendStringInfo(text, "%s the row that was modified ",
							 type == PAPPLY_UPDATE_ORIGIN_DIFFERS ? "Updating" : "Deleting");
			append_writer(text, writer);
	}
}

void
papply_conflict_type_log(Oid relid, PapplyConflictType type, const PapplyRowWriter *writer,
						 const char *key)
{
	StringInfoData detail;

	initStringInfo(&detail);
	append_detail(&detail, type, writer);
	if (key[0] != '\0')
		appendStringInfo(&detail, "\nReplica identity %s.", key);
	ereport(LOG,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("conflict detected on relation \"%s.%s\": conflict=%s",
					get_namespace_name(get_rel_namespace(relid)), get_rel_name(relid),
					names[type]),
			 errdetail_internal("%s", detail.data)));
	pfree(detail.data);
}
