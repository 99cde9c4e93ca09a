/*-------------------------------------------------------------------------
 * version.c
 *	  Versions of the library and of the extension's SQL objects.
 *
 * Runs in a user's backend.
 *
 * A server keeps the library that it has loaded at its start, whatever is installed
 * meanwhile.  So an installation script may be newer than the library: each begins with
 * check_library_version(), which every version of the library has.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "sql_common.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/rel.h"


PG_FUNCTION_INFO_V1(papply_version);
PG_FUNCTION_INFO_V1(papply_check_library_version);

/*
 * Compare the first two numbers of a version with those of the library.
 * Returns less than, equal to or greater than 0.
 */
static int
compare_with_library(const char *version)
{
	int			numbers[2] = {0, 0};
	int			library[2] = {0, 0};

	(void) sscanf(version, "%d.%d", &numbers[0], &numbers[1]);
	(void) sscanf(PAPPLY_VERSION, "%d.%d", &library[0], &library[1]);
	return numbers[0] != library[0] ? numbers[0] - library[0] : numbers[1] - library[1];
}

const char *
papply_version_installed(void)
{
	Relation	rel = table_open(ExtensionRelationId, AccessShareLock);
	HeapTuple	tuple = get_catalog_object_by_oid(rel, Anum_pg_extension_oid,
												  get_extension_oid(PAPPLY_NAME, true));
	const char *version = "none";
	bool		is_null;

	if (HeapTupleIsValid(tuple))
		version = TextDatumGetCString(heap_getattr(tuple, Anum_pg_extension_extversion,
												   RelationGetDescr(rel), &is_null));
	table_close(rel, AccessShareLock);
	return version;
}

int
papply_version_hint(const char *sql_version)
{
	int			order = compare_with_library(sql_version);

	if (order < 0)
		return errhint("Use ALTER EXTENSION %s UPDATE.", PAPPLY_NAME);
	if (order > 0)
		return errhint("Restart the server after version %s of the library has been installed.",
					   sql_version);
	return 0;
}

/*
 * papply_version() returns the version of the library that the server has
 * loaded.
 */
Datum
papply_version(PG_FUNCTION_ARGS)
{
	PG_RETURN_TEXT_P(cstring_to_text(PAPPLY_VERSION));
}

/*
 * papply_check_library_version(version) throws if the library is too old for SQL
 * objects of this version.
 */
Datum
papply_check_library_version(PG_FUNCTION_ARGS)
{
	const char *version = text_to_cstring(PG_GETARG_TEXT_PP(0));

	if (compare_with_library(version) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("version %s of extension \"%s\" requires a newer library",
						version, PAPPLY_NAME),
				 errdetail("The server has loaded library version %s.", PAPPLY_VERSION),
				 papply_version_hint(version)));
	PG_RETURN_VOID();
}
