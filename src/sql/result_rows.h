/*-------------------------------------------------------------------------
 * result_rows.h
 *	  Rows that an SQL function returns, for any version of its declaration.
 *-------------------------------------------------------------------------
 */
#ifndef PAPPLY_RESULT_ROWS_H
#define PAPPLY_RESULT_ROWS_H

#include "fmgr.h"
#include "funcapi.h"

/* A column that the library provides. */
typedef struct PapplyResultColumn
{
	const char *name;
	Oid			type;
} PapplyResultColumn;

typedef struct PapplyResultRows
{
	ReturnSetInfo *result;
	const int  *sources;		/* index of the provided column for each
								 * declared one */
} PapplyResultRows;

/*
 * Begin the result of a set-returning function.  Throws an error if it is
 * declared with a column that is not provided.
 */
extern PapplyResultRows *papply_result_rows_begin(FunctionCallInfo fcinfo,
												  const PapplyResultColumn *columns, int length);

/* Add a row, which has all provided columns in their order. */
extern void papply_result_rows_put(PapplyResultRows *rows, const Datum *values, const bool *nulls);

/* Return the row of a function that returns one.  Throws the same error. */
extern Datum papply_result_rows_single(FunctionCallInfo fcinfo,
									   const PapplyResultColumn *columns, int length,
									   const Datum *values, const bool *nulls);

#endif							/* PAPPLY_RESULT_ROWS_H */
