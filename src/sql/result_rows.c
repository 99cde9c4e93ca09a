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
 * not provide is an error, whose hint depends on which of them is older; no value ever
 * appears in another column.
 *
 * The alternative is a C function for each version of a row, as contrib modules have.
 * It relies on the author of a change to remember that, and crashes where the number
 * or the types of columns differ.
 *-------------------------------------------------------------------------
 */
#include "parallel_apply.h"

#include "access/htup_details.h"
#include "utils/builtins.h"
#include "utils/regproc.h"

#include "result_rows.h"
#include "version.h"

static void
throw_mismatch(FunctionCallInfo fcinfo, Form_pg_attribute attribute)
{
	const char *installed = papply_version_installed();

	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("function %s does not match the library of extension \"%s\"",
					format_procedure(fcinfo->flinfo->fn_oid), PAPPLY_NAME),
			 errdetail("Library version %s does not provide column \"%s\" of type %s; the extension has version %s.",
					   PAPPLY_VERSION, NameStr(attribute->attname),
					   format_type_be(attribute->atttypid), installed),
			 papply_version_hint(installed)));
}

static int
find_column(Form_pg_attribute attribute, const PapplyResultColumn *columns, int length)
{
	for (int i = 0; i < length; i++)
		if (columns[i].type == attribute->atttypid &&
			strcmp(columns[i].name, NameStr(attribute->attname)) == 0)
			return i;
	return -1;
}

static int *
match_columns(FunctionCallInfo fcinfo, TupleDesc declared,
			  const PapplyResultColumn *columns, int length)
{
	int		   *sources = palloc(sizeof(int) * Max(declared->natts, 1));

	for (int i = 0; i < declared->natts; i++)
	{
		sources[i] = find_column(TupleDescAttr(declared, i), columns, length);
		if (sources[i] < 0)
			throw_mismatch(fcinfo, TupleDescAttr(declared, i));
	}
	return sources;
}

static HeapTuple
form_row(TupleDesc declared, const int *sources, const Datum *values, const bool *nulls)
{
	Datum		row_values[MaxTupleAttributeNumber];
	bool		row_nulls[MaxTupleAttributeNumber];

	for (int i = 0; i < declared->natts; i++)
	{
		row_values[i] = values[sources[i]];
		row_nulls[i] = nulls[sources[i]];
	}
	return heap_form_tuple(declared, row_values, row_nulls);
}

PapplyResultRows *
papply_result_rows_begin(FunctionCallInfo fcinfo, const PapplyResultColumn *columns, int length)
{
	PapplyResultRows *rows = palloc(sizeof(PapplyResultRows));

	InitMaterializedSRF(fcinfo, 0);
	rows->result = (ReturnSetInfo *) fcinfo->resultinfo;
	rows->sources = match_columns(fcinfo, rows->result->setDesc, columns, length);
	return rows;
}

void
papply_result_rows_put(PapplyResultRows *rows, const Datum *values, const bool *nulls)
{
	HeapTuple	tuple = form_row(rows->result->setDesc, rows->sources, values, nulls);

	tuplestore_puttuple(rows->result->setResult, tuple);
	heap_freetuple(tuple);
}

Datum
papply_result_rows_single(FunctionCallInfo fcinfo, const PapplyResultColumn *columns, int length,
						  const Datum *values, const bool *nulls)
{
	TupleDesc	declared;
	int		   *sources;

	if (get_call_result_type(fcinfo, NULL, &declared) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	declared = BlessTupleDesc(declared);
	sources = match_columns(fcinfo, declared, columns, length);
	return HeapTupleGetDatum(form_row(declared, sources, values, nulls));
}
