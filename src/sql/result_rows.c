/*-------------------------------------------------------------------------
 * result_rows.c
 *	  Rows that an SQL function returns, whatever version declared it.
 *
 * Runs in a user's backend.
 *
 * A function is declared by an installation script, which may be older or newer than
 * the library: ALTER EXTENSION UPDATE comes some time after the restart with a new
 * library, or before it.  So columns are matched by name and type, not by position.
 * A column that the script does not declare is left out.  One that the library does
 * not provide is an error as soon as there is a row, and the hint depends on which of
 * them is older; no value ever appears in another column.
 *
 * The alternative is a C function for each version of a row, as contrib modules have.
 * It relies on the author of a change to remember that, and crashes where the number
 * or the types of columns differ.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/pg_lsn.h"
#include "utils/regproc.h"
#include "utils/timestamp.h"

#include "result_rows.h"
#include "sql_common.h"

static void
throw_mismatch(Oid function, Form_pg_attribute attribute)
{
	const char *installed = papply_version_installed();

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("function %s does not match the library of extension \"%s\"",
					format_procedure(function), PAPPLY_NAME),
			 errdetail("Library version %s does not provide column \"%s\" of type %s; the extension has version %s.",
					   PAPPLY_VERSION, NameStr(attribute->attname),
					   format_type_be(attribute->atttypid), installed),
			 papply_version_hint(installed)));
}

PapplyRow *
papply_row_create(FunctionCallInfo fcinfo, TupleDesc declared)
{
	PapplyRow  *row = palloc0(sizeof(PapplyRow));

	row->function = fcinfo->flinfo->fn_oid;
	row->declared = declared;
	return row;
}

PapplyRow *
papply_row_begin(FunctionCallInfo fcinfo)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	PapplyRow  *row;

	InitMaterializedSRF(fcinfo, 0);
	row = papply_row_create(fcinfo, result->setDesc);
	row->result = result->setResult;
	return row;
}

void
papply_row_value(PapplyRow *row, const char *column, Oid type, Datum value, bool is_null)
{
	for (int i = 0; i < row->declared->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(row->declared, i);

		if (attribute->atttypid == type && strcmp(NameStr(attribute->attname), column) == 0)
		{
			row->values[i] = value;
			row->nulls[i] = is_null;
			row->is_set[i] = true;
		}
	}
}

void
papply_row_text(PapplyRow *row, const char *column, const char *value)
{
	papply_row_value(row, column, TEXTOID, value ? CStringGetTextDatum(value) : (Datum) 0,
					 value == NULL);
}

void
papply_row_oid(PapplyRow *row, const char *column, Oid value)
{
	papply_row_value(row, column, OIDOID, ObjectIdGetDatum(value), !OidIsValid(value));
}

void
papply_row_int8(PapplyRow *row, const char *column, int64 value, bool is_null)
{
	papply_row_value(row, column, INT8OID, Int64GetDatum(value), is_null);
}

void
papply_row_lsn(PapplyRow *row, const char *column, XLogRecPtr value)
{
	papply_row_value(row, column, PG_LSNOID, LSNGetDatum(value), XLogRecPtrIsInvalid(value));
}

void
papply_row_time(PapplyRow *row, const char *column, TimestampTz value)
{
	papply_row_value(row, column, TIMESTAMPTZOID, TimestampTzGetDatum(value), value == 0);
}

HeapTuple
papply_row_form(PapplyRow *row)
{
	for (int i = 0; i < row->declared->natts; i++)
		if (!row->is_set[i])
			throw_mismatch(row->function, TupleDescAttr(row->declared, i));
	memset(row->is_set, 0, sizeof(row->is_set));
	return heap_form_tuple(row->declared, row->values, row->nulls);
}

void
papply_row_put(PapplyRow *row)
{
	HeapTuple	tuple = papply_row_form(row);

	tuplestore_puttuple(row->result, tuple);
	heap_freetuple(tuple);
}
