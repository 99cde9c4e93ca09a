/*-------------------------------------------------------------------------
 * result_rows.h
 *	  Rows that an SQL function returns, for any version of its declaration.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RESULT_ROWS_H
#define PAPPLY_RESULT_ROWS_H

#include "access/htup_details.h"
#include "datatype/timestamp.h"
#include "fmgr.h"
#include "funcapi.h"

#include "parallel_apply.h"

/* A row under construction. */
typedef struct PapplyRow
{
	Oid			function;		/* that returns or stores it */
	TupleDesc	declared;
	Tuplestorestate *result;	/* NULL unless the function returns rows */
	Datum		values[MaxTupleAttributeNumber];
	bool		nulls[MaxTupleAttributeNumber];
	bool		is_set[MaxTupleAttributeNumber];
} PapplyRow;

/* Begin a row with the columns of a relation. */
extern PapplyRow *papply_row_create(FunctionCallInfo fcinfo, TupleDesc declared);

/*
 * Begin the result of a set-returning function.  The same PapplyRow is used for all of
 * its rows.
 */
extern PapplyRow *papply_row_begin(FunctionCallInfo fcinfo);

/* Set a column, if a column of this name and type is declared. */
extern void papply_row_value(PapplyRow *row, const char *column, Oid type, Datum value, bool is_null);
extern void papply_row_int8(PapplyRow *row, const char *column, int64 value, bool is_null);

/* The same.  NULL, InvalidOid, InvalidXLogRecPtr, or a time of 0 become a null value. */
extern void papply_row_text(PapplyRow *row, const char *column, const char *value);
extern void papply_row_oid(PapplyRow *row, const char *column, Oid value);
extern void papply_row_lsn(PapplyRow *row, const char *column, XLogRecPtr value);
extern void papply_row_time(PapplyRow *row, const char *column, TimestampTz value);

/*
 * Complete the row, and begin the next one.  Throws an error if a declared column has
 * not been set.
 */
extern HeapTuple papply_row_form(PapplyRow *row);

/* The same, and add it to the result. */
extern void papply_row_put(PapplyRow *row);

#endif							/* PAPPLY_RESULT_ROWS_H */
